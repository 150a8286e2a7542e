"""Which settings are in force where a command was typed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tasks.dev.state import find_running
from tasks.settings import Settings, SettingsError, load_settings


@dataclass(frozen=True, slots=True)
class Here:
    """The settings in force, and the development stack's folder when they are its."""

    settings: Settings
    stack: Path | None = None


def settings_here() -> Here:
    """The environment's settings; PostgreSQL and Redis of the `vancetope dev` of this folder when it names neither.

    Raises ``SettingsError`` for unknown or malformed settings. Settings may still lack both services.
    """
    settings = load_settings()
    if settings.database_url is not None or settings.redis_url is not None:
        return Here(settings)
    state = find_running()
    if state is None:
        return Here(settings)
    return Here(load_settings({**os.environ, **state.environment()}), Path(state.folder))


def backend_settings() -> Settings:
    """Settings that name PostgreSQL and Redis. Raises ``SettingsError`` that says the two ways to get there."""
    here = settings_here().settings
    missing = [
        name
        for name, value in (("VANCETOPE_DATABASE_URL", here.database_url), ("VANCETOPE_REDIS_URL", here.redis_url))
        if value is None
    ]
    if len(missing) == 1:
        raise SettingsError(
            f"{missing[0]} is not set but its counterpart is: set both, or neither beside a running dev"
        )
    if missing:
        raise SettingsError(
            f"no backend is known here: start one with `vancetope dev` in this folder ({Path.cwd()}), or set "
            "VANCETOPE_DATABASE_URL and VANCETOPE_REDIS_URL"
        )
    return here
