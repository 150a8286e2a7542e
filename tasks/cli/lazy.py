"""A group whose commands are imported when they are used: `vancetope --help` and completion stay quick."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

from tasks.cli.failures import INTERRUPTED, explained

Entry = tuple[str, str]


class LazyGroup(click.Group):
    """``sections``: title -> command name -> (``module:attribute``, one line of help).

    Errors that are a person's or the installation's doing end the command with one line (``tasks.cli.failures``).
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, Entry]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self._entries = {name: entry for part in sections.values() for name, entry in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._entries:
            return None
        module, _, attribute = self._entries[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self._entries:
            near = difflib.get_close_matches(name, self._entries, n=2)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see `vancetope --help`"
            ctx.fail(f"there is no command {name!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            known = explained(error)
            if known is None:
                raise
            raise known from error
