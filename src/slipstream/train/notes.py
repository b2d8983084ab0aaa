"""What has to be said beside the table of a recipe."""

from collections.abc import Iterator

from slipstream.tables import short
from slipstream.tf32 import tf32_words
from slipstream.train.judge import Judge


def notes_of(judge: Judge) -> Iterator[str]:
    """One line each: what was compared with what, and what is not in the times."""
    subject = judge.subject
    forth_s, update_s = judge.written.phases_s()
    yield (
        f"A step as written is {short(1e3 * forth_s)} ms forward and backward, and "
        f"{short(1e3 * update_s)} ms update."
    )
    if judge.has_compared:
        if not judge.reference.is_double:
            yield "The step has no double precision: gradients were compared with its own."
        if judge.reference.draws:
            yield "The step draws random numbers; compiled code draws others than torch."
    if not subject.model.training:
        yield "The model is in evaluation mode, and was tuned so."
    if subject.device.type == "cuda":
        yield f"As written, {tf32_words()}."
    yield "Batches were made before: loading of data is not in these times."
