"""`valem eval`: what an expression gives for a document, as a spec would see it."""

from __future__ import annotations

import click

from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.expression import UNDEFINED, compile_expression
from tasks.cli.failures import FAILED
from tasks.cli.output import err, json_option, plain, print_json
from tasks.cli.valem.files import evaluator, now, read_json


@click.command("eval")
@click.argument("expression", metavar="EXPR")
@click.option("--input", "source", metavar="FILE|-", help="The JSON document it reads; without it there is none.")
@json_option
@click.pass_context
def evaluate(ctx: click.Context, /, expression: str, source: str | None, as_json: bool) -> None:
    """Evaluate the JSONata expression EXPR. Exit code 1 when it does not compile or fails.

    Nothing is printed for an undefined value, which is not the same as null.
    """
    document = UNDEFINED if source is None else read_json(source, "--input")
    try:
        value = compile_expression(expression).evaluate(document, now=now(), evaluator=evaluator())
    except ExpressionError as error:
        if as_json:
            found = {"code": error.code, "message": error.message, "position": error.position, "token": error.token}
            print_json({"error": found})
        else:
            _show(expression, error)
        ctx.exit(FAILED)
    if as_json:
        print_json({"defined": value is not UNDEFINED} | ({} if value is UNDEFINED else {"value": value}))
    elif value is UNDEFINED:
        err().print("undefined")
    else:
        print_json(value, indent=2)


def _show(expression: str, error: ExpressionError) -> None:
    console = err()
    console.print(f"{error.code}: {plain(error.message)}", markup=False)
    if error.position is not None and "\n" not in expression:
        console.print(plain(expression), markup=False)
        console.print(" " * error.position + "^", markup=False)
