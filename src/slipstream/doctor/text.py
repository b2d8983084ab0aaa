"""The report on one screen of a terminal, with colours where they are wanted."""

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slipstream.doctor.report import quoted

_BAR = 60
_COLOURS = {
    "loading": "red", "copy": "yellow", "sync": "yellow", "checkpoint": "magenta",
    "garbage": "magenta", "evaluation": "blue", "unattributed": "bright_black",
}  # fmt: skip
_SHADES = {"loading": "█", "unattributed": "░"}
_TOP = 3
_NAMED = 12


def print_report(report: dict[str, Any], console: Console, *, page: str | None = None) -> None:
    """Verdict, parts, the dearest findings, what is fine, what to do next."""
    report = _shown(report)
    console.print(Text(report["verdict"], style="bold"), soft_wrap=False)
    if report["step_ms"]:
        console.print(Padding(_waterfall(report, min(console.width, 80)), (1, 0, 0, 0)))
        console.print(Padding(_findings(report), (1, 0, 0, 0)))
        if report["ladder"]:
            console.print(_ladder(report))
        for storage in report["storage"]:
            console.print(_storage(storage))
        console.print(_healthy(report))
        console.print(_numbers(report))
    if report["findings"]:
        _print_next(report, console)
    if page:
        console.print(Text(f"The whole report: {_shown(page)}"))


def _shown(thing: Any) -> Any:
    """The same without what a terminal would obey: names of files may hold it."""
    if isinstance(thing, str):
        return "".join(sign if sign.isprintable() else "�" for sign in thing)
    if isinstance(thing, dict):
        return {_shown(key): _shown(value) for key, value in thing.items()}
    return [_shown(value) for value in thing] if isinstance(thing, list) else thing


def _waterfall(report: dict[str, Any], width: int) -> RenderableType:
    step = report["step_ms"]
    bar = Text()
    parts = sorted(report["parts"].items(), key=lambda part: (part[0] == "unattributed", -part[1]))
    room = min(_BAR, width - 20)
    for name, ms in parts:
        cells = round(room * ms / step)
        bar.append(_SHADES.get(name, "▓") * cells, style=_COLOURS.get(name, "green"))
    bar.append(f" {step:.1f} ms a step")
    table = Table.grid(padding=(0, 2))
    for name, ms in parts:
        table.add_row(
            Text(_SHADES.get(name, "▓"), style=_COLOURS.get(name, "green")),
            name, Text(f"{ms:.2f} ms", justify="right"), Text(f"{ms / step:.0%}", justify="right"),
        )  # fmt: skip
    return Group(bar, table)


def _findings(report: dict[str, Any]) -> RenderableType:
    lines: list[RenderableType] = []
    for number, finding in enumerate(report["findings"][:_TOP], 1):
        lines.append(
            Text.assemble(
                f"{number}. ", (finding["rule"], "bold red"),
                f"  {finding['cost_ms']:.1f} ms a step, {finding['share']:.0%}  ",
                (finding["where"] or "", "cyan"),
            )
        )  # fmt: skip
        lines.append(Padding(Text(finding["title"]), (0, 0, 0, 3)))
        gain = finding["gain"]
        said = ""
        if gain is not None:
            said = (
                f" Gains {gain['low_ms']:.1f} to {gain['high_ms']:.1f} ms a step ({gain['how']})."
            )
        fix = Text(f"→ {finding['fix']} [{finding['class']}]{said}")
        lines.append(Padding(fix, (0, 0, 0, 3)))
    more = len(report["findings"]) - _TOP
    if more > 0:
        lines.append(Text(f"… and {more} smaller findings in the report.", style="dim"))
    if not report["findings"]:
        lines.append(Text("No finding.", style="green"))
    return Group(*lines)


def _ladder(report: dict[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for rung in report["ladder"]:
        table.add_row(
            rung["name"], Text(f"{rung['ms']:.2f} ms", justify="right"),
            f"± {(rung['high'] - rung['low']) / 2:.2f}",
        )  # fmt: skip
    return Padding(
        Group(Text("The ladder, a step with …"), Padding(table, (0, 0, 0, 3))), (1, 0, 0, 0)
    )


def _storage(found: dict[str, Any]) -> RenderableType:
    rates = [
        f"{name} {found[key]:,.0f} MB/s"
        for name, key in (
            ("cold, random", "cold_mb_s"), ("warm, random", "random_mb_s"),
            ("warm, sequential", "sequential_mb_s"), ("the loop reads", "needed_mb_s"),
        )
        if found[key] is not None
    ]  # fmt: skip
    return Padding(Text(f"Storage, {found['filesystem']}: {'; '.join(rates)}."), (1, 0, 0, 0))


def _healthy(report: dict[str, Any]) -> RenderableType:
    names = [entry["rule"] for entry in report["healthy"]]
    said = f"Fine: {', '.join(names[:_NAMED])}"
    if len(names) > _NAMED:
        said += f" and {len(names) - _NAMED} more, which the report names"
    return Padding(Text(f"{said}.", style="dim"), (1, 0, 0, 0))


def _numbers(report: dict[str, Any]) -> RenderableType:
    steps, ceiling = report["steps"], report["ceiling_ms"]
    said = (
        f"{steps['count']} steps, mean {steps['low_ms']:.1f} to {steps['high_ms']:.1f} ms (95 %)."
    )
    if ceiling is not None:
        said += f" Ceiling without loading: {ceiling:.1f} ms."
    overhead = report["overhead"].get("share")
    if overhead is not None:
        said += f" Watching cost {overhead:.1%}."
    return Text(said)


def _print_next(report: dict[str, Any], console: Console) -> None:
    commands = {finding["next"] for finding in report["findings"]} - {None}
    if commands:
        all_fixes = f"slipstream run {quoted(report['script'])}"
        command = commands.pop() if len(commands) == 1 else all_fixes
        console.print(Text.assemble("Next: ", (command, "bold")))
