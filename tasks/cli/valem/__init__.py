"""`valem`: specs in files, without any queue or database, and those that are stored."""

from __future__ import annotations

import click

from tasks.cli.lazy import LazyGroup

SECTIONS = {
    "Commands": {
        "generate": ("tasks.cli.valem.writing:generate", "Have a model write a spec."),
        "evolve": ("tasks.cli.valem.writing:evolve", "Have a model change a spec."),
        "validate": ("tasks.cli.valem.validation:validate", "Look for errors in a spec."),
        "test": ("tasks.cli.valem.testing:test", "Run a spec's embedded tests."),
        "prompt": ("tasks.cli.valem.prompting:prompt", "Print what would be sent to a model."),
        "eval": ("tasks.cli.valem.evaluate:evaluate", "Evaluate one expression against a document."),
    },
    "Stored models": {
        "ls": ("tasks.cli.valem.stored:ls", "List them."),
        "cat": ("tasks.cli.valem.stored:cat", "Print a spec or the change that led to it."),
        "put": ("tasks.cli.valem.stored:put", "Store a spec from a file."),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS)
def valem() -> None:
    """Work on Valem specs, in files and stored."""
