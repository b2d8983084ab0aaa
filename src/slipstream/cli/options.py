"""The options of a command."""

import typer


def options_of(context: typer.Context) -> list[str]:
    """As they are typed."""
    return [name for parameter in context.command.params for name in parameter.opts]
