"""The report on one screen of a terminal: 80 columns are enough, and colours only help."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise, zip_longest
from typing import Any

from rich.console import Console
from rich.text import Text

from slipstream.doctor.report import ARGUMENTS, quoted

_BAR = 60
_COLOURS = {
    "loading": "red", "copy": "yellow", "sync": "yellow", "checkpoint": "magenta",
    "garbage": "magenta", "evaluation": "blue", "unattributed": "bright_black",
}  # fmt: skip
# One for each part, so that a bar without colours can be read.
_SIGNS = {
    "loading": "█", "unattributed": "░", "forward": "▒", "backward": "▓", "optimizer": "=",
    "zero-grad": "-", "clip": "+", "copy": ">", "sync": "!", "evaluation": "▄",
    "checkpoint": "▀", "garbage": "~", "calls": "*",
}  # fmt: skip
_OTHER_SIGN = "#"
_UNSEEN = (
    "→ Check that the script trains with these arguments. Loops over torch's DataLoader or"
    " slipstream.Loader are seen, and steps of torch's optimizers, in this process and its threads;"
    " not in processes that the script starts: there, put slipstream.diagnose() around the loop."
)
_ONE_COLUMN = 4  # rows; more of them stand in two columns where there is room
_TWO_COLUMNS_WIDTH = 72
_TOP = 3
_NAMED = 8
_NAMED_FINDINGS = 5
_INDENT = "   "
_CLASSES = {
    "E": "same results bit for bit",
    "N": "other rounding or random numbers",
    "S": "changes what is computed",
}
_HOW = {
    "measured": "measured by trying it",
    "bounded": "estimated",
    "simulated": "predicted by a simulation",
}
# What a reader whose step goes to this part would look for first.
_CAUSES = {
    "loading": (
        "no-workers", "too-few-workers", "slow-decoder", "oversized-decode", "slow-transform",
        "storage-wait", "slow-collate", "shallow-prefetch", "cold-reads", "workers-restarted",
    ),
    "forward": (
        "no-amp", "no-tf32", "channels-last", "thread-count", "launch-bound", "unfused-attention",
        "float64-model", "cudnn-benchmark-off", "small-batch",
    ),
    "backward": (
        "anomaly-detection", "retained-graph", "activation-checkpoint", "frozen-gradients",
        "unused-parameters", "gradient-sync", "conv-bias-before-norm", "deterministic-mode",
    ),
    "optimizer": ("for-loop-optimizer", "parameter-loop", "zero-grad-memset"),
    "zero-grad": ("zero-grad-memset",),
    "clip": ("parameter-loop",),
    "copy": ("pageable-copy", "blocking-copy", "copy-on-critical-path", "cpu-built-tensor"),
    "sync": ("sync-each-step", "hidden-sync", "timer-without-sync"),
    "evaluation": ("eval-with-grad", "frequent-evaluation"),
    "checkpoint": ("frequent-checkpoint",),
    "garbage": ("garbage-collection", "forced-garbage-collection"),
    "calls": ("logging-in-loop", "empty-cache-in-loop", "forced-garbage-collection"),
    "unattributed": ("python-in-loop", "logging-in-loop", "repeated-work", "profiler-left-on"),
}  # fmt: skip


def print_report(
    report: dict[str, Any], console: Console, *, page: str | None = None,
    arguments: Sequence[str] = (),
) -> None:  # fmt: skip
    """Verdict, parts, the dearest findings, what was not found, what to do next. `arguments` are
    the script's: a report has none, as it may be shown to others.
    """
    report = _shown(report)
    _print(Text(report["verdict"], style="bold"), console)
    for note in report.get("notes", ()):
        _print(Text(note, style="yellow"), console)
    if report["step_ms"]:
        _print_waterfall(report, console)
        _print_findings(report, console)
        if report["ladder"]:
            _print_ladder(report, console)
        for storage in report["storage"]:
            _print_storage(storage, console)
        console.print()
        _print_healthy(report, console)
        _print(_numbers(report), console)
    else:
        _print(Text(_UNSEEN), console)
    command = _next_command(report)
    if command is not None:
        if arguments:
            command = command.removesuffix(f" {ARGUMENTS}")
        command = _shown(" ".join([command, *map(shlex.quote, arguments)]))
        console.print(Text.assemble("Next: ", (command, "bold")), soft_wrap=True)
    if page:
        console.print(Text(f"The whole report: {_shown(page)}"), soft_wrap=True)


def _print(text: Text, console: Console, indent: str = "") -> None:
    """Lines without spaces at their ends, in pipes, too."""
    for line in text.wrap(console, console.width - len(indent)):
        line.rstrip()
        console.print(Text(indent) + line, soft_wrap=True)


def _shown(thing: Any) -> Any:
    """The same without what a terminal would obey: names of files may hold it."""
    if isinstance(thing, str):
        return "".join(sign if sign.isprintable() else "�" for sign in thing)
    if isinstance(thing, dict):
        return {_shown(key): _shown(value) for key, value in thing.items()}
    return [_shown(value) for value in thing] if isinstance(thing, list) else thing


def _parts(report: dict[str, Any]) -> list[tuple[str, float]]:
    """The largest first, `unattributed` last."""
    return sorted(report["parts"].items(), key=lambda part: (part[0] == "unattributed", -part[1]))


def _print_waterfall(report: dict[str, Any], console: Console) -> None:
    step, parts = report["step_ms"], _parts(report)
    room = min(_BAR, console.width - 20)
    ends = accumulate((max(0.0, ms) for _, ms in parts), initial=0.0)
    cells = [round(room * min(1.0, end / step)) for end in ends]
    bar = Text()
    for (name, _), (start, end) in zip(parts, pairwise(cells), strict=True):
        bar.append(_sign(name) * (end - start), style=_colour(name))
    bar.append(f" {step:.1f} ms a step")
    console.print()
    console.print(bar)
    rows = _aligned([(name, ms, ms / step) for name, ms in parts if _is_seen(ms, step)])
    half = len(rows)
    if len(rows) > _ONE_COLUMN and console.width >= _TWO_COLUMNS_WIDTH:
        half = (len(rows) + 1) // 2
    for left, right in zip_longest(rows[:half], rows[half:]):
        console.print(left if right is None else Text("     ").join((left, right)), soft_wrap=True)


def _aligned(parts: list[tuple[str, float, float]]) -> list[Text]:
    """Each with its sign, name, milliseconds and share; all of them of the same width."""
    widest = max((len(name) for name, _, _ in parts), default=0)
    digits = max((len(f"{ms:.2f}") for _, ms, _ in parts), default=0)
    return [
        Text.assemble(
            (_sign(name), _colour(name)), f"  {name:<{widest}}  {ms:{digits}.2f} ms  {share:>4.0%}"
        )
        for name, ms, share in parts
    ]


def _sign(part: str) -> str:
    return _SIGNS.get(part, _OTHER_SIGN)


def _colour(part: str) -> str:
    return _COLOURS.get(part, "green")


def _is_seen(ms: float, step_ms: float) -> bool:
    """Whether a row would show anything but zeros."""
    return round(ms, 2) > 0 or round(100 * ms / step_ms) > 0


def _print_findings(report: dict[str, Any], console: Console) -> None:
    findings = report["findings"]
    console.print()
    for number, finding in enumerate(findings[:_TOP], 1):
        cost = f"{finding['cost_ms']:.1f} ms a step, {finding['share']:.0%}  "
        head = Text.assemble(
            f"{number}. ", (finding["rule"], "bold red"), "  ",
            cost if finding["cost_ms"] > 0 else "", (finding["where"] or "", "cyan"),
        )  # fmt: skip
        _print(head, console)
        _print(Text(finding["title"]), console, _INDENT)
        fix = f"→ {finding['fix']} [{finding['class']}]{_gain(finding['gain'])}"
        _print(Text(fix), console, _INDENT)
    if len(findings) > _TOP:
        rest = [finding["rule"] for finding in findings[_TOP:]]
        _print(Text(f"Smaller ones: {_some(rest, _NAMED_FINDINGS)}.", style="dim"), console)
    if findings:
        said = {finding["class"] for finding in findings[:_TOP]}
        legend = " · ".join(f"[{name}] {_CLASSES[name]}" for name in _CLASSES if name in said)
        _print(Text(legend, style="dim"), console)
    else:
        console.print(Text("No finding.", style="green"))


def _gain(gain: dict[str, Any] | None) -> str:
    """What mending it brings, and how that is known."""
    if gain is None or gain["high_ms"] <= 0:
        return ""
    low, high = f"{gain['low_ms']:.1f}", f"{gain['high_ms']:.1f}"
    saved = high if low == high else f"up to {high}" if low == "0.0" else f"{low} to {high}"
    return f" Saves {saved} ms a step ({_HOW[gain['how']]})."


def _print_ladder(report: dict[str, Any], console: Console) -> None:
    rungs = report["ladder"]
    widest = max(len(rung["name"]) for rung in rungs)
    console.print()
    console.print(Text("The ladder, a step with …"))
    for rung in rungs:
        spread = (rung["high"] - rung["low"]) / 2
        said = f"{rung['name']:<{widest}}  {rung['ms']:8.2f} ms  ± {spread:.2f}"
        console.print(Text(_INDENT + said), soft_wrap=True)


def _print_storage(found: dict[str, Any], console: Console) -> None:
    rates = [
        f"{name} {found[key]:,.0f} MB/s"
        for name, key in (
            ("cold, random", "cold_mb_s"), ("warm, random", "random_mb_s"),
            ("warm, sequential", "sequential_mb_s"), ("the loop reads", "needed_mb_s"),
        )
        if found[key] is not None
    ]  # fmt: skip
    console.print()
    _print(Text(f"Storage, {found['filesystem']}: {'; '.join(rates)}."), console)


def _print_healthy(report: dict[str, Any], console: Console) -> None:
    """How many causes were looked for; some of them by name, as many as two lines hold."""
    healthy = {entry["rule"] for entry in report["healthy"]}
    if not healthy:
        return
    said = f"Looked for and not found: {len(healthy)} cause{'s' if len(healthy) > 1 else ''}"
    named = ""
    for rule in islice(_foremost(report, healthy), _NAMED):
        longer = f"{named}, {rule}" if named else rule
        if len(said) + len(longer) > 2 * console.width - 32:
            break
        named = longer
    _print(Text(f"{said}{', among them ' if named else ''}{named}.", style="dim"), console)


def _foremost(report: dict[str, Any], healthy: set[str]) -> Iterator[str]:
    """Of these rules the ones that matter here: first those about the largest part of a step."""
    yield from dict.fromkeys(
        rule
        for part, ms in sorted(report["parts"].items(), key=lambda part: -part[1])
        if _is_seen(ms, report["step_ms"])
        for rule in _CAUSES.get(part, ())
        if rule in healthy
    )


def _some(names: list[str], most: int) -> str:
    said = ", ".join(names[:most])
    return said if len(names) <= most else f"{said} and {len(names) - most} more"


def _numbers(report: dict[str, Any]) -> Text:
    steps, ceiling = report["steps"], report["ceiling_ms"]
    said = f"{steps['count']} steps: {steps['low_ms']:.1f} to {steps['high_ms']:.1f} ms (95%)"
    if ceiling is not None:
        said += f", {ceiling:.1f} without loading"
    overhead = report["overhead"].get("share")
    if overhead is not None:
        said += f"; watching cost {overhead:.1%}"
    return Text(f"{said}.")


def _next_command(report: dict[str, Any]) -> str | None:
    """What mends the first finding; where nothing does, or others have cures of their own, all."""
    commands = [finding.get("next") for finding in report["findings"]]
    known = {command for command in commands if command}
    if not known:
        return None
    if len(known) == 1 and commands[0]:
        return str(commands[0])
    behind = f" {ARGUMENTS}" if any(command.endswith(ARGUMENTS) for command in known) else ""
    return f"slipstream run {quoted(report['script'])}{behind}"
