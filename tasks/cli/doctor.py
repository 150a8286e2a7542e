"""`doctor`: is everything there, and if not, what to do. Spends no money and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import redis
from alembic.script import ScriptDirectory
from rich.text import Text

from engines.errors import EngineError
from engines.llm.base import LlmError, LlmRequest, Message
from engines.llm.catalogue import Catalogue
from engines.llm.config import Selection
from engines.tools.registry import ToolsError
from models.store import read, webhooks
from models.store.database import Database, DatabaseUnavailable
from tasks.broker import publisher_app
from tasks.cli.failures import FAILED
from tasks.cli.here import settings_here
from tasks.cli.output import json_option, out, plain, print_json
from tasks.cli.wired import workers_answering
from tasks.dev.local_model import LocalModel
from tasks.dev.migrate import configuration
from tasks.dev.process import StackError
from tasks.logs import Redactor
from tasks.settings import Settings, SettingsError
from tasks.toolbox import load_tools
from tasks.wiring import load_engines

OK = "ok"
PROBLEM = "problem"
NOTE = "note"
_BEAT_SECONDS = 6.0
_SWEEP = "vancetope.sweep"


class Findings:
    """The lines of the report, in order."""

    def __init__(self) -> None:
        self.lines: list[dict[str, str]] = []
        self._redact = Redactor()

    def add(self, what: str, state: str, text: str) -> None:
        self.lines.append({"check": what, "state": state, "text": self._redact(plain(text))})

    @property
    def healthy(self) -> bool:
        return all(line["state"] != PROBLEM for line in self.lines)


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool) -> None:
    """Check settings, PostgreSQL, Redis, workers, beat, providers and engines. Exit code 1 when there is a problem."""
    findings = Findings()
    settings = _settings(findings)
    if settings is not None:
        _examine(findings, settings)
    if as_json:
        print_json({"healthy": findings.healthy, "checks": findings.lines})
    else:
        styles = {OK: "green", PROBLEM: "red", NOTE: "yellow"}
        for line in findings.lines:
            text = Text.assemble((f"{line['state']:<8}", styles[line["state"]]), f"{line['check']:<13}", line["text"])
            out().print(text, soft_wrap=True)
    ctx.exit(0 if findings.healthy else FAILED)


def _settings(findings: Findings) -> Settings | None:
    try:
        here = settings_here()
    except SettingsError as error:
        findings.add("settings", PROBLEM, str(error))
        return None
    origin = f"the development stack in {here.stack}" if here.stack else "the environment"
    findings.add("settings", OK, f"from {origin}")
    return here.settings


def _examine(findings: Findings, settings: Settings) -> None:
    for what, value, check in (
        ("PostgreSQL", settings.database_url, postgres),
        ("Redis", settings.redis_url, redis_server),
    ):
        if value is None:
            text = f"not named: set VANCETOPE_{what.replace('PostgreSQL', 'database').upper()}_URL"
            findings.add(what, PROBLEM, f"{text}, or start `vancetope dev` in this folder")
        else:
            check(findings, settings)
    if settings.redis_url is not None:
        workers(findings, settings)
    providers(findings, settings)
    local_model(findings, settings)
    engines(findings, settings)
    tools(findings, settings)


def postgres(findings: Findings, settings: Settings) -> None:
    """Reachable, migrated, and how much waits."""
    database = Database(settings.database, pool_size=1, pool_timeout=5, name="vancetope-doctor")
    try:
        version = database.statement("SHOW server_version", {})[0][0]
        revision = read.schema_revision(database)
        head = ScriptDirectory.from_config(configuration(settings.database)).get_current_head()
        if revision != head:
            found = f"is at {revision}" if revision else "was never migrated"
            findings.add("PostgreSQL", PROBLEM, f"{version}; the schema {found}, not {head}: run `vancetope migrate`")
            return
        findings.add("PostgreSQL", OK, f"{version}, schema {revision}")
        for engine, due, leased, oldest in read.backlog(database):
            slow = oldest > 30
            text = f"{due} turns of {engine} due (the oldest for {oldest:.0f} s), {leased} running"
            findings.add("backlog", NOTE if slow else OK, text + (": start more workers" if slow else ""))
        for each in webhooks.endpoints(database):
            if each.failing_since or each.disabled_reason:
                what = f"was disabled: {each.disabled_reason}" if each.disabled_reason else "takes nothing at present"
                look = f"`vancetope webhooks deliveries {each.id} --tenant {each.tenant}` shows what it answers"
                findings.add("webhooks", NOTE, f"webhook {each.id} of {each.tenant} {what}; {look}")
    except DatabaseUnavailable as error:
        findings.add("PostgreSQL", PROBLEM, f"{error}: is it running, is VANCETOPE_DATABASE_URL right?")
    finally:
        database.dispose()


def redis_server(findings: Findings, settings: Settings) -> None:
    """Reachable, recent, and never throwing messages away."""
    client = redis.Redis.from_url(settings.redis, socket_timeout=5, socket_connect_timeout=5)
    try:
        info: Any = client.info()
        name = "Valkey" if info.get("valkey_version") else "Redis"
        version = str(info.get("valkey_version") or info.get("redis_version", "?"))
        policy = str(info.get("maxmemory_policy", "?"))
        kept = "kept on disk" if info.get("aof_enabled") else "in memory only (fine: PostgreSQL is the truth)"
        if policy != "noeviction":
            text = f"{name} {version} evicts keys ({policy}): set maxmemory-policy noeviction, or messages vanish"
            findings.add("Redis", PROBLEM, text)
        elif int(str(info.get("redis_version", "0")).split(".")[0]) < 6:
            findings.add("Redis", PROBLEM, f"{name} {version} is too old: 6.2 or newer is needed")
        else:
            findings.add("Redis", OK, f"{name} {version}, noeviction, {kept}")
    except redis.RedisError as error:
        findings.add("Redis", PROBLEM, f"{error}: is it running, is VANCETOPE_REDIS_URL right?")
    finally:
        client.close()


def workers(findings: Findings, settings: Settings) -> None:
    """Somebody answers, and somebody sweeps."""
    app = publisher_app(settings)
    try:
        names = workers_answering(app, timeout=1.5)
        if not names:
            text = "none answers: `vancetope dev`, or `celery -A tasks.celery worker -P threads`"
            findings.add("workers", PROBLEM, text)
            return
        findings.add("workers", OK, f"{len(names)} answer: {', '.join(names)}")
        if _grows(lambda: _swept(app), _BEAT_SECONDS + 2 * settings.sweep_seconds):
            findings.add("beat", OK, "sweeps are coming in")
        else:
            findings.add(
                "beat", PROBLEM, "no sweep comes in: start `celery -A tasks.celery beat`: it triggers the repairs"
            )
    finally:
        app.close()


def _swept(app: Any) -> int:
    """Sweeps done so far by the workers that answer."""
    stats = app.control.inspect(timeout=1.0).stats() or {}
    return sum(int(each.get("total", {}).get(_SWEEP, 0)) for each in stats.values())


def _grows(measure: Callable[[], int], within: float) -> bool:
    first = measure()
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if measure() > first:
            return True
    return False


def providers(findings: Findings, settings: Settings) -> None:
    """Whether the default aliases mean anything here."""
    try:
        config = settings.llm()
        catalogue = Catalogue.load(config.catalogue_path)
        selection = Selection(config, catalogue, scripted=config.scripted_path is not None)
        request = LlmRequest(model="default:fast", messages=(Message(role="user", content=""),))
        found = selection.choose(request)
    except LlmError as error:
        findings.add("providers", PROBLEM, error.message)
        return
    except EngineError as error:
        findings.add("providers", PROBLEM, f"catalogue: {error.message}")
        return
    usable = [name for name in catalogue.providers if selection.usable(name)]
    findings.add("providers", OK, f"{', '.join(usable)}; default:fast is {found.provider_name}:{found.model}")


def local_model(findings: Findings, settings: Settings) -> None:
    """Whether `vancetope dev` could start one, or has."""
    if settings.local_model_url:
        findings.add("local model", OK, f"at {settings.local_model_url}")
        return
    try:
        model = LocalModel(settings.local_model_path)
    except StackError as error:
        findings.add("local model", NOTE, f"not available: {error}")
    else:
        findings.add("local model", OK, f"{model.name} can be started by `vancetope dev --local-model`")


def engines(findings: Findings, settings: Settings) -> None:
    """What runs here."""
    try:
        findings.add("engines", OK, ", ".join(load_engines(settings.engines)))
    except SettingsError as error:
        findings.add("engines", PROBLEM, str(error))


def tools(findings: Findings, settings: Settings) -> None:
    """What recipes may be given, the installation's own tools among it."""
    try:
        findings.add("tools", OK, ", ".join(spec.name for spec in load_tools(settings).specs()))
    except ToolsError as error:
        findings.add("tools", PROBLEM, error.message)
