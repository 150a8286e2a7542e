"""Settings: read from the environment, refused by name, kept out of sight, and all of them in the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.settings import PREFIX, Settings, SettingsError, load_settings

README = Path(__file__).parents[2] / "README.md"


def test_an_empty_environment_is_fine() -> None:
    settings = load_settings({})
    assert settings.turn_burst == 1
    assert settings.lease_seconds == 30.0


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"VANCETOPE_LEASE_SECOND .*VANCETOPE_LEASE_SECONDS"):
        load_settings({"VANCETOPE_LEASE_SECOND": "3"})


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"VANCETOPE_TURN_BURST": "many", "VANCETOPE_LEASE_SECONDS": "0", "VANCETOPE_NOPE": "1"})
    for name in ("VANCETOPE_TURN_BURST", "VANCETOPE_LEASE_SECONDS", "VANCETOPE_NOPE"):
        assert name in str(caught.value)


def test_foreign_variables_and_empty_ones_are_left_alone() -> None:
    settings = load_settings({"VANCETOPE_TEST_DATABASE_URL": "x", "VANCETOPE_OPENAI_API_KEY": "", "PATH": "/bin"})
    assert settings.openai_api_key is None


def test_a_missing_database_says_what_to_set() -> None:
    with pytest.raises(SettingsError, match="VANCETOPE_DATABASE_URL is not set"):
        _ = load_settings({}).database


def test_secrets_stay_out_of_sight_and_reach_the_llm_layer() -> None:
    settings = load_settings(
        {"VANCETOPE_OPENAI_API_KEY": "sk-very-secret", "VANCETOPE_REDIS_URL": "redis://:hidden@h:1/0"}
    )
    assert "sk-very-secret" not in repr(settings)
    assert "hidden" not in repr(settings)
    assert settings.llm().key("openai") == "sk-very-secret"
    assert "sk-very-secret" not in repr(settings.llm())
    assert set(settings.secrets()) == {"sk-very-secret", "redis://:hidden@h:1/0"}


def test_the_readme_lists_exactly_the_settings_there_are() -> None:
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## Settings") : text.index("## Measured")]
    listed = re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(field.upper() for field in Settings.model_fields)
    assert PREFIX in section


def test_a_recipes_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"VANCETOPE_RECIPES_DIR: .*there is no folder .*/nowhere"):
        load_settings({"VANCETOPE_RECIPES_DIR": str(tmp_path / "nowhere")})
    assert load_settings({"VANCETOPE_RECIPES_DIR": str(tmp_path)}).recipes_dir == tmp_path


def test_texts_cannot_be_kept_for_longer_than_their_process() -> None:
    days = {"VANCETOPE_RETENTION_DAYS": "30", "VANCETOPE_RETENTION_ARTIFACTS_DAYS": "31"}
    with pytest.raises(
        SettingsError, match=r"VANCETOPE_RETENTION_ARTIFACTS_DAYS: .*at most VANCETOPE_RETENTION_DAYS, 30"
    ):
        load_settings(days)
    found = load_settings({**days, "VANCETOPE_RETENTION_ARTIFACTS_DAYS": "7"}).retention()
    assert (found.keep, found.artifacts) == (30, 7)
