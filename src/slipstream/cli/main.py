"""`slipstream`: the commands, and the one place that turns errors into messages and exit codes.

Exit codes: 0 all well, 1 findings, 2 usage error or failure, 130 interrupted.
"""

import functools
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

import slipstream
from slipstream.cli.compare import compare
from slipstream.cli.demo import demo
from slipstream.cli.doctor import doctor
from slipstream.cli.export import export
from slipstream.cli.info import info
from slipstream.cli.lint import lint
from slipstream.cli.optimize import optimize
from slipstream.cli.pack import pack
from slipstream.cli.run import run
from slipstream.cli.verify import verify
from slipstream.errors import SlipstreamError
from slipstream.launch import drop_own_path, end_as_the_script

EXIT_FAILURE = 2
EXIT_INTERRUPTED = 130
_WHEN_INTERRUPTED = dict.fromkeys(("pack", "export"), "; repeat the same command to go on")

app = typer.Typer(
    name="slipstream",
    help="Find out why your PyTorch training is slow, and make it fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line of this process."""
    try:
        app()
    except SystemExit:
        if not _scripts:
            raise
    code = _scripts.pop()()
    end_as_the_script()
    if code == -signal.SIGINT:
        # Its traceback was printed. Python ends as ever, and then by the signal: a shell knows by
        # that that its loop is to end, too.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(slipstream.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def _guard(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command; what goes wrong on purpose becomes one message and an exit code."""

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except SlipstreamError as error:
            print(f"slipstream {command.__name__}: {error}", file=sys.stderr)
            raise typer.Exit(EXIT_FAILURE) from None
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            hint = _WHEN_INTERRUPTED.get(command.__name__, "")
            print(f"slipstream {command.__name__}: interrupted{hint}", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception:
            # Exit code 1 means findings; an unforeseen failure must not look like that.
            traceback.print_exc()
            raise typer.Exit(EXIT_FAILURE) from None

    return run


# Scripts run when the command line's own frames are gone: tools that look at the stack, and
# autograd's anomaly mode in every operation, see what they see without us.
_scripts: list[Callable[[], int]] = []


def _runs_script(command: Callable[..., None]) -> Callable[..., None]:
    """A command that runs a user's script: what stands behind its name is the script's."""
    guarded = _guard(command)

    @functools.wraps(command)
    def note(*args: object, **kwargs: object) -> None:
        def run_now() -> int:
            drop_own_path()
            try:
                guarded(*args, **kwargs)
            except typer.Exit as leaving:
                return leaving.exit_code
            return 0

        _scripts.append(run_now)

    settings = {
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    }
    return app.command(context_settings=settings)(note)


for _command in (pack, verify, info, export, demo, compare, lint, optimize):
    app.command()(_guard(_command))
_runs_script(doctor)
_runs_script(run)

if __name__ == "__main__":
    main()
