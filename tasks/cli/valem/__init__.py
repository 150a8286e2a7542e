"""`valem`: specs in files, without any queue or database. One module per command."""

from __future__ import annotations

import click

from tasks.cli.lazy import LazyGroup

SECTIONS = {
    "Commands": {
        "test": ("tasks.cli.valem.testing:test", "Run a spec's embedded tests."),
        "eval": ("tasks.cli.valem.evaluate:evaluate", "Evaluate one expression against a document."),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS)
def valem() -> None:
    """Work on Valem specs in files: nothing of the backend is needed."""
