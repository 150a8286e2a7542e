"""`valem validate`: everything that is wrong with a spec, with its place and what would be right."""

from __future__ import annotations

import click

from engines.valem.findings import Finding
from engines.valem.spec.parse import SpecParseError
from engines.valem.spec.validate import validate_spec
from tasks.cli.failures import FAILED
from tasks.cli.output import json_option, out, plain, print_json
from tasks.cli.valem.files import evaluator, read_spec


@click.command("validate")
@click.argument("file", metavar="FILE|-")
@json_option
@click.pass_context
def validate(ctx: click.Context, /, file: str, as_json: bool) -> None:
    """Look for errors in the spec in FILE. Exit code 1 when there is one; warnings alone are no failure.

    Embedded tests are not run: `valem test` does that.
    """
    try:
        findings = validate_spec(read_spec(file), evaluator=evaluator())
    except SpecParseError as error:
        findings = [Finding("", error.message)]
    if as_json:
        print_json([_as_json(each) for each in findings])
    else:
        for finding in findings:
            _show(finding)
        if not findings:
            out().print("no problems")
    ctx.exit(FAILED if any(finding.is_error for finding in findings) else 0)


def _as_json(finding: Finding) -> dict[str, str]:
    found = {"location": finding.location, "message": finding.message, "severity": finding.severity.value}
    return found | ({"hint": finding.hint} if finding.hint else {})


def _show(finding: Finding) -> None:
    out().print(f"{finding.severity.value:<7}", style="red" if finding.is_error else "yellow", end="  ")
    out().print(plain(f"{finding.location}: {finding.message}" if finding.location else finding.message), markup=False)
    if finding.hint:
        out().print(plain(f"         {finding.hint}"), markup=False)
