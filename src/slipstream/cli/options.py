"""What commands are given."""

from typing import Annotated

import typer

Script = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCRIPT [ARGS]...",
        help="The script and its own arguments, or -m and the name of a module.",
        show_default=False,
    ),
]


def options_of(context: typer.Context) -> list[str]:
    """As they are typed."""
    return [name for parameter in context.command.params for name in parameter.opts]
