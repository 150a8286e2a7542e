"""Jeltz cannot be steered: a message after the submission is dropped, with a warning that does not repeat it."""

from __future__ import annotations

import logging

import pytest
from celery import Celery
from factory import make_process, rows

from tasks.control import steer_process
from tasks.settings import load_settings
from tasks.wiring import Runtime


def test_16_a_steer_is_warned_about_and_changes_nothing(
    database_url: str, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings({"VANCETOPE_DATABASE_URL": database_url, "VANCETOPE_REDIS_URL": redis_url})
    wired = Runtime(settings, Celery("steer", set_as_current=False))
    process = make_process(wired.database, "RUNNING")
    before = rows(wired.database, "SELECT status, (SELECT count(*) FROM messages) FROM processes")
    with caplog.at_level(logging.WARNING):
        assert steer_process(wired, process) is False
    assert rows(wired.database, "SELECT status, (SELECT count(*) FROM messages) FROM processes") == before
    assert [record.getMessage() for record in caplog.records] == ["message to a running process dropped"]
    assert caplog.records[0].__dict__["engine"] == "probe"
    wired.close()
