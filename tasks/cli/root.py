"""The top of the command line: which commands there are and where they live."""

from __future__ import annotations

import click

from tasks.cli.lazy import LazyGroup

SECTIONS = {
    "Run the backend": {
        "dev": ("tasks.cli.dev:dev", "Run everything on this machine until Ctrl-C."),
        "demo": ("tasks.cli.demo:demo", "Run real jobs on a backend of their own, then stop."),
        "api": ("tasks.cli.api:api", "Serve the HTTP API."),
        "tokens": ("tasks.cli.tokens:tokens", "Tokens of the HTTP API."),
        "webhooks": ("tasks.cli.webhooks:webhooks", "Tell others by HTTP of jobs and questions."),
        "retention": ("tasks.cli.retention:retention", "How long closed jobs and their texts are kept."),
        "doctor": ("tasks.cli.doctor:doctor", "Check settings, services, workers, providers; say what to do."),
        "migrate": ("tasks.cli.migrate:migrate", "Bring the database to this version."),
    },
    "Jobs": {
        "run": ("tasks.cli.run:run", "Submit, show progress, print the result."),
        "submit": ("tasks.cli.run:submit", "Submit and print the id; --batch for many."),
        "status": ("tasks.cli.show:status", "What is known of one job."),
        "list": ("tasks.cli.show:list_", "The newest jobs."),
        "watch": ("tasks.cli.watch:watch", "Watch a job live until it closes."),
        "plan": ("tasks.cli.tree:plan", "A job's tree of tasks."),
        "result": ("tasks.cli.show:result", "Print a job's result; --wait for it."),
        "stop": ("tasks.cli.steer:stop", "Close a job and everything below it now."),
        "suspend": ("tasks.cli.steer:suspend", "Let a job rest; no new turns."),
        "resume": ("tasks.cli.steer:resume", "Let a suspended job go on."),
        "calls": ("tasks.cli.show:calls", "A job's model calls: tokens, money, time."),
        "history": ("tasks.cli.show:history", "A job's phases and messages."),
        "export": ("tasks.cli.export:export", "Write a job with everything it owns to a JSON file."),
        "replay": ("tasks.cli.replay:replay", "Run an exported job again offline; show what differs."),
        "dead-letters": ("tasks.cli.show:dead_letters", "Messages nobody could act on."),
    },
    "Questions to people": {
        "inbox": ("tasks.cli.inbox:inbox", "List, show, answer, dismiss questions."),
        "answer": ("tasks.cli.inbox:answer", "Answer a question; its job goes on."),
    },
    "Documents": {
        "docs": ("tasks.cli.docs:docs", "List, print, store, delete documents."),
    },
    "Recipes, schemas, specs, models": {
        "recipes": ("tasks.cli.recipes:recipes", "List, show and check recipes."),
        "schema": ("tasks.cli.schema:schema", "Check a JSON Schema before paying for it."),
        "valem": ("tasks.cli.valem:valem", "Test specs of reactive models; evaluate expressions."),
        "models": ("tasks.cli.catalogue:models", "The model catalogue; what can be used here."),
    },
}

EPILOG = (
    "Exit codes: 0 done; 1 the result is a failure; 2 wrong usage; 3 not configured or not reachable; 4 not finished "
    "in time. Every command takes --json."
)


@click.group(cls=LazyGroup, sections=SECTIONS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vancetope", message="%(prog)s %(version)s")
def main() -> None:
    """Durable think engines: submit a recipe, get one checked result, whatever crashes meanwhile.

    Start with `vancetope dev` in one terminal and `vancetope run extract-event --prompt "…"` in another.
    """
