"""`native-pictures`: JPEG files that Pillow opens are decoded by the engine."""

from slipstream.run.fix import Fix, Situation, Undo

NAME = "native-pictures"
_FORMAT = "JPEG"
_OPEN = "read: Image.open"


def applies(situation: Situation) -> tuple[bool, str]:
    """Where Pillow was seen to decode JPEG, or to open pictures of which nothing else is known."""
    formats: dict[str, int] = {}
    opened = 0
    for process in situation.capture.processes:
        opened += process.stages[_OPEN].count if _OPEN in process.stages else 0
        for kind, (count, _) in process.facts.get("pictures", {}).items():
            formats[kind] = formats.get(kind, 0) + count
    if not formats and not opened:
        return False, "Pillow decodes no pictures"
    if not formats:
        return True, f"Pillow opens pictures ({opened:,} were seen)"
    if not formats.get(_FORMAT):
        return False, f"Pillow decodes no JPEG, only {', '.join(sorted(formats))}"
    return True, "Pillow decodes JPEG"


def apply(situation: Situation) -> Undo:
    """In this process and in the workers of its loaders."""
    from slipstream.run.pictures import counts
    from slipstream.run.pictures.install import install

    undo = install(give_up=lambda error: situation.give_up(NAME, error))

    def undo_and_tell() -> None:
        undo()
        by_engine, by_pillow = counts.total()
        if by_engine or by_pillow:
            line = f"{by_engine:,} pictures by the engine, {by_pillow:,} left to Pillow"
            situation.note(NAME, line, left=not by_engine)

    return undo_and_tell


FIX = Fix(
    NAME, "E", "JPEG is decoded by the engine, and only what is used of it",
    ("slow-decoder", "oversized-decode"), applies, apply,
)  # fmt: skip
