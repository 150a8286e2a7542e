"""Bring a database to a revision of this checkout's migrations, without Alembic's command line."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

# Advisory lock that a migrating transaction holds. The number only has to be the same everywhere.
LOCK = 8_264_391_755
SCRIPTS = Path(__file__).resolve().parents[2] / "alembic"


def configuration(dsn: str) -> Config:
    """Alembic's configuration for one database. Any `postgresql://` DSN will do; the driver is added by `env.py`."""
    config = Config()
    # Percent signs are interpolated in this one option.
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["dsn"] = dsn
    return config


def upgrade(dsn: str, revision: str = "head") -> None:
    """Apply pending migrations, all or none; several callers at once wait for each other."""
    command.upgrade(configuration(dsn), revision)


def downgrade(dsn: str, revision: str) -> None:
    """Undo migrations down to `revision` (`base`: all of them)."""
    command.downgrade(configuration(dsn), revision)
