"""`valem`: specs in files, without any queue or database. One module per command."""

from __future__ import annotations

import click

from tasks.cli.lazy import LazyGroup

SECTIONS = {
    "Commands": {
        "generate": ("tasks.cli.valem.writing:generate", "Have a model write a spec."),
        "evolve": ("tasks.cli.valem.writing:evolve", "Have a model change a spec."),
        "validate": ("tasks.cli.valem.validation:validate", "Look for errors in a spec."),
        "test": ("tasks.cli.valem.testing:test", "Run a spec's embedded tests."),
        "eval": ("tasks.cli.valem.evaluate:evaluate", "Evaluate one expression against a document."),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS)
def valem() -> None:
    """Work on Valem specs in files: nothing of the backend is needed."""
