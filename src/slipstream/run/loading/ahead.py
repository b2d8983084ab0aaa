"""Batches of a loader without workers, made ahead in other processes and checked when they are due.

torch makes such a batch when it is asked for, from the global random generators as they are then.
Here a forked process makes it sooner, from the states that these are expected to have. When the
batch is due and they do have them, it is handed out and they are put where torch would have left
them; in all other cases it is thrown away, and the batch is made as torch makes it.

Where samples draw nothing, batches do not depend on each other, and several processes make them.
Where they draw, each batch begins where the one before ended. One process makes all, or there are
cores for more: then one finds out where each begins, and the others make them.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from slipstream.loader.wire import Closed
from slipstream.run.fix import Say
from slipstream.run.loading import parked
from slipstream.run.loading.child import Job
from slipstream.run.loading.crew import Answer, Crew
from slipstream.run.loading.digest import digest, kinds
from slipstream.run.loading.held import Held
from slipstream.run.loading.indices import Indices
from slipstream.run.loading.knowledge import Knowledge
from slipstream.run.loading.questions import has_same_answer
from slipstream.run.loading.scout import Scout
from slipstream.run.loading.staffing import DEPTH, Staffing
from slipstream.run.loading.states import (
    States,
    are_at,
    can_be_kept,
    changed,
    read_states,
    write_states,
)
from slipstream.run.loading.surroundings import surroundings

_LOOKED_AT = 6  # batches made here before anything else: the first steps are no measure
LEAST_BATCH_S = 3e-3  # below, handing over costs too much
# Of loading in this iteration: processes have to be started. They stay for the next one, and where
# there were some, there may be more.
_LEAST_LEFT_S, _LEAST_LEFT_AGAIN_S = 0.3, 0.1
_WATCH_SHARE = 0.03  # of a batch's time that looking for changes may take
_MOST_MISSES = 3
_PATIENCE_S = 5.0  # at least, and
_PATIENCE_TIMES = 10  # what a batch takes
_SPOT_CHECKS, _CHECKED_EACH = (64, 128, 256), 512  # of the batches that were made ahead
# From so many batches on, the first of an iteration is made here as well where its maker is one of
# the iteration before: in between, scripts change what samples are made from.
_LONG = 64


class Ahead:
    """The batches of one iteration."""

    def __init__(
        self, fetch: Callable[[Any], Any], indices: Indices, job: Job, knowledge: Knowledge, *,
        length: int | None, say: Say, fail: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        """`fetch` makes a batch as torch does, and `length` is how many there are."""
        self._fetch, self._indices, self._job, self._known = fetch, indices, job, knowledge
        self._left = math.inf if length is None else length
        self._say, self._fail = say, fail
        self._crew: Crew | None = None
        self._held: Held | None = None
        self._verifying: tuple[int, str, States, float] | None = None
        # The number of a task, its index, and the states that it begins with where these were told.
        self._queue: deque[tuple[int, Any, States | None]] = deque()
        self._scout: Scout | None = None
        # Where the generators are before the first batch of the queue, as its maker has it.
        self._chain: States = {}
        self._expected: tuple[str, States] | None = None
        self._is_kept = False  # what makes batches, and none of them was looked at
        self._returned: tuple[float, bool] | None = None
        self._staffing = Staffing(knowledge)
        self._first = 0  # the number of a batch that cannot miss: the loop had no turn before it
        knowledge.iterations += 1

    def __next__(self) -> Any:
        if self._returned is not None:
            self._known.note_loop(time.perf_counter() - self._returned[0])
        try:
            index = next(self._indices)
        except StopIteration:
            self._end()
            raise
        except BaseException:
            self.close()
            raise
        self._left -= 1
        answer = None
        if not self._known.off:
            try:
                answer = self._take(index)
            except Closed:
                self._turn_off("a process that makes batches ahead has ended")
            except Exception as error:
                self._give_up(error)
            except BaseException:
                self.close()
                raise
        if answer is not None:
            self._note_period(is_ahead=True)
            return answer.batch
        return self._make_here(index)

    def close(self) -> None:
        """End the processes."""
        crew, self._crew, self._verifying = self._crew, None, None
        self._void()
        if crew is not None:
            crew.close()

    def _void(self) -> None:
        """Nothing that was given is waited for."""
        self._queue.clear()
        self._scout = None

    def _end(self) -> None:
        """The processes wait for another iteration."""
        crew = self._crew
        is_ours = crew is not None and crew.owner == os.getpid() and self._verifying is None
        if crew is None or not is_ours or not crew.contents or self._known.off:
            self.close()
            return
        try:
            crew.restart(threads=1)
        except Exception:
            self.close()
            return
        self._void()
        self._crew = None
        parked.park(self._known, crew)

    def _turn_off(self, why: str) -> None:
        self._known.off = why
        self._say(f"left alone: {why}", left=True)
        self.close()

    def _give_up(self, error: BaseException) -> None:
        self._known.off = f"{type(error).__name__}: {error}"
        self.close()
        parked.end_all()
        self._fail(error)

    # Here, as torch does it.

    def _make_here(self, index: Any) -> Any:
        known = self._known
        is_short = self._crew is None and known.made_here >= _LOOKED_AT and not self._is_long()
        if known.off or is_short:
            self._returned = None
            return self._fetch(index)
        before = read_states()
        began = time.perf_counter()
        try:
            batch = self._fetch(index)
        except BaseException:
            self._queue_is_void()
            raise
        seconds = time.perf_counter() - began
        if self._expected is not None and not self._passes_spot_check(before, batch):
            return batch
        known.note_made_here(seconds)
        try:
            after = read_states()
            self._note_touched(changed(before, after))
            if self._held is None:
                self._held = Held(known.roots)
            self._held.note_given(index)
            self._go_on(index, before, after, batch)
        except Closed:
            self._turn_off("a process that makes batches ahead has ended")
        except Exception as error:
            self._give_up(error)
        self._note_period(is_ahead=False)
        return batch

    def _passes_spot_check(self, before: States, batch: Any) -> bool:
        """Now and then a batch that was made ahead is made here as well."""
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == digest(batch):
            ends = expected[1]
            if are_at(ends) and changed(before, read_states()).keys() <= ends.keys():
                return True
        self._give_up(
            RuntimeError(
                "a batch made ahead was not what it should have been, and those before it, back to"
                " the last that was looked at, may not have been either: start anew with"
                " --skip parallel-loading"
            )
        )
        return False

    def _note_touched(self, ends: States) -> bool:
        """Of generators that samples were not known to change: whether there are any. Who makes
        batches has to know of them.
        """
        known = self._known
        if known.touched.issuperset(ends):
            return False
        known.touched.update(ends)
        self.close()
        return True

    def _queue_is_void(self) -> None:
        if self._crew is not None and self._known.draws:
            self._void()

    def _go_on(self, index: Any, before: States, after: States, batch: Any) -> None:
        """A batch was made here: what the others are to do now."""
        known = self._known
        if self._crew is not None:
            if self._verifying is None and known.draws:
                self._begin_chain(after)
        elif self._may_start():
            if known.verified is not None and known.verified.is_same_throughout():
                self._start()
                if known.draws:
                    self._begin_chain(after)
                else:
                    self._work()
            else:
                try:
                    expected, known.kinds = digest(batch), kinds(batch)
                except Exception as error:
                    self._turn_off(
                        f"its batches cannot be handed over: {str(error).partition('. ')[0]}"
                    )
                    return
                number = self._start().verify(index, before)
                self._verifying = number, expected, changed(before, after), time.monotonic()

    def _may_start(self) -> bool:
        known = self._known
        if known.is_doubted or (known.made_here < _LOOKED_AT and known.verified is None):
            return False
        if why := self._why_not():
            self._turn_off(why)
            return False
        return self._is_long()

    def _why_not(self) -> str:
        known = self._known
        assert self._held is not None
        if self._indices.why_not:
            return self._indices.why_not
        if known.batch_s < LEAST_BATCH_S:
            return f"a batch takes {1000 * known.batch_s:.2f} ms, too little to be worth it"
        if why := self._held.why_not(_WATCH_SHARE * known.batch_s):
            return why
        return "" if can_be_kept() else "NumPy's generator is not its usual one"

    # Elsewhere.

    def _start(self) -> Crew:
        assert self._held is not None
        self._job = replace(self._job, threads=torch.get_num_threads())
        touched = frozenset(self._known.touched)
        crew = self._crew = Crew(replace(self._job, held=self._held, touched=touched))
        if self._known.keeps:
            crew.contents = self._held.contents()
            # To look in vain before every epoch may take long.
            self._known.keeps = bool(crew.contents)
        crew.grow()
        return crew

    def _start_early(self, index: Any) -> None:
        """Before the first batch of a later iteration, which is made here meanwhile, or by one of
        them where another has to find out first where the second begins.
        """
        known = self._known
        if known.is_doubted:
            return
        if self._goes_on_with(parked.take(known)):
            assert self._crew is not None
            if not known.draws:
                self._work()
            elif self._crew.has_scout and self._staffing.may_scout:
                self._begin_chain(read_states(), index)
            return
        if known.draws or known.verified is None or not self._is_long():
            return
        if not self._indices.why_not and known.verified.is_same_throughout():
            self._held = known.verified
            self._start()
            self._work()

    def _goes_on_with(self, crew: Crew | None) -> bool:
        """Whether the processes of the last iteration do for this one."""
        if crew is None or crew.owner != os.getpid() or not crew.children:
            return False
        held = crew.job.held
        if (
            not crew.job.is_that_of(self._job)
            or crew.job.touched != self._known.touched
            or self._indices.why_not
            or held is None
            or not held.is_same_throughout()
            or crew.surroundings != surroundings()
            or crew.contents != held.contents()
        ):
            crew.close()
            return False
        self._crew, self._held = crew, held
        self._is_kept = self._left >= _LONG - 1
        return True

    def _is_long(self) -> bool:
        least_s = _LEAST_LEFT_S if self._known.iterations == 1 else _LEAST_LEFT_AGAIN_S
        return self._known.batch_s * self._left >= least_s

    def _work(self) -> None:
        """Samples draw nothing: all that are free take part."""
        assert self._crew is not None
        if len(self._crew.children) < self._staffing.wanted:
            self._known.judge_anew()
        self._grow_to(self._crew, self._staffing.wanted)
        self._refill()

    def _begin_chain(self, states: States, due: Any = None) -> None:
        """The next batch begins with these states: the one that is `due`, or the one behind."""
        crew = self._crew
        assert crew is not None
        before = len(crew.children), crew.has_scout
        makers = self._staffing.wanted
        is_scouted = self._staffing.may_scout and (makers > 1 or crew.has_scout)
        if not is_scouted and len(crew.children) > 1:
            crew.close()
            crew = self._start()
        if is_scouted:
            self._grow_to(crew, makers + 1)
            is_scouted = len(crew.children) > 1
        crew.has_scout = is_scouted
        if before != (len(crew.children), is_scouted):
            self._known.judge_anew()
        # One that makes all has the cores for itself.
        crew.restart(threads=1 if is_scouted else self._job.threads)
        self._void()
        self._chain = dict(states)
        if is_scouted:
            self._scout = Scout(crew, self._indices, self._known, states, due)
        if due is not None:
            self._first = crew.give(due, states, beyond=1)
            self._queue.append((self._first, due, states))
        else:
            self._refill(states)

    def _refill(self, states: States | None = None) -> None:
        """`states` are those that the first of a chain begins with."""
        crew, scout = self._crew, self._scout
        assert crew is not None
        if scout is not None:
            scout.listen()
            scout.ask(len(self._queue))
        makers = len(crew.children) - (scout is not None)
        while len(self._queue) < DEPTH * makers and (scout is None or scout.begins):
            index = self._indices.ahead(len(self._queue))
            if index is None:
                return
            if scout is not None:
                states = scout.begins.popleft()
                number = crew.give(index, states, beyond=1)
                self._queue.append((number, index, states))
            else:
                self._queue.append((crew.give(index, states), index, None))
                states = None

    def _take(self, index: Any) -> Answer | None:
        """The batch, if it was made ahead and is what torch would make now."""
        crew = self._ready_crew(index)
        limit = max(_PATIENCE_S, _PATIENCE_TIMES * self._known.batch_s)
        if crew is not None and self._scout is not None and not self._queue:
            self._wait_for_scout(crew, index)
        if crew is None or not self._queue:
            # They have been forked, and what the loop has changed since is not theirs.
            if self._crew is not None and self._held is not None and not self._held.is_same():
                self._begin_anew()
            return None
        number, expected, begins = self._queue.popleft()
        assert self._held is not None
        is_same = self._held.is_same() and crew.surroundings == surroundings()
        if expected is not index or not is_same:
            self._begin_anew()
            return None
        began = time.perf_counter()
        answer = self._wait_for(crew, number, limit)
        waited = time.perf_counter() - began
        if answer is None:
            self._turn_off("a process that makes batches ahead did not answer")
            return None
        if not self._is_due(answer, begins):
            return None
        if not kinds(answer.batch) <= self._known.kinds:
            # It may be the dataset's own, which a process can not hand over.
            self._queue_is_void()
            self._miss("batches hold objects of other kinds than the first ones")
            return None
        are_files_old = not all(map(has_same_answer, answer.asked))
        if are_files_old or answer.entries != self._held.entries(index):
            self._begin_anew()
            return None
        self._known.delivered += 1
        if self._is_to_be_checked():
            self._expected = digest(answer.batch), answer.ends
            return None
        self._held.note_given(index)
        write_states(answer.ends)
        self._chain.update(answer.ends)
        if number != self._first:
            self._known.misses = 0
        # The generators have moved on: whatever fails now, this batch is not made again.
        try:
            self._grow_where_it_waits(waited, answer)
            self._refill()
        except Closed:
            self._turn_off("a process that makes batches ahead has ended")
        except Exception as error:
            self._give_up(error)
        return answer

    def _is_to_be_checked(self) -> bool:
        count, is_first = self._known.delivered, self._is_kept
        self._is_kept = False
        return is_first or count in _SPOT_CHECKS or not count % _CHECKED_EACH

    def _grow_where_it_waits(self, waited: float, answer: Answer) -> None:
        known, crew, scout = self._known, self._crew, self._scout
        assert crew is not None
        known.note_made_elsewhere(answer.seconds)
        makers = len(crew.children) - (scout is not None)
        missing = self._staffing.missing(makers, waited, answer.nbytes)
        if not missing:
            return
        if not known.draws or (scout is not None and known.scouts):
            known.judge_anew()
            self._grow_to(crew, len(crew.children) + missing)
        elif scout is None and self._staffing.may_scout:
            self._begin_chain(read_states())

    def _grow_to(self, crew: Crew, count: int) -> None:
        try:
            while len(crew.children) < count:
                crew.grow()
        except OSError:
            if not crew.children:
                raise
            self._staffing.has_enough()  # no more are allowed; those that there are go on

    def _wait_for(self, crew: Crew, number: int, seconds: float) -> Answer | None:
        if self._scout is None:
            return crew.wait_for(number, seconds)
        deadline = time.monotonic() + seconds
        crew.collect(0.0)
        while (answer := crew.answer(number)) is None and time.monotonic() < deadline:
            self._refill()
            crew.collect(deadline - time.monotonic())
        return answer

    def _wait_for_scout(self, crew: Crew, index: Any) -> None:
        """The batch that is due was given to nobody, as it was not known where it begins."""
        scout = self._scout
        assert scout is not None
        deadline = time.monotonic() + scout.patience_s
        scout.listen()
        while not scout.begins and scout.is_looking and time.monotonic() < deadline:
            crew.collect(deadline - time.monotonic())
            scout.listen()
        if scout.begins:
            states = scout.begins.popleft()
            self._queue.append((crew.give(index, states, beyond=1), index, states))
        elif scout.is_looking:
            self._known.scouts = False  # without pixels a sample may never end
            self._void()

    def _begin_anew(self) -> None:
        """As things are now."""
        self.close()
        self._held = None
        self._miss("what samples are made from changes all the time")

    def _ready_crew(self, index: Any) -> Crew | None:
        """Those who have worked ahead, if there are any by now, or who make this batch."""
        crew = self._crew
        if crew is None:
            self._start_early(index)
            return self._crew if self._scout is not None else None
        if not crew.children:
            self._turn_off("the script waits for whichever of its processes ends")
        elif crew.owner != os.getpid():
            self.close()  # this process was forked meanwhile, and they are another's
        elif self._verifying is not None:
            self._look_at_verification(crew)
        else:
            return crew
        return None

    def _is_due(self, answer: Answer, begins: States | None) -> bool:
        if answer.failure:
            self._queue_is_void()
            return self._miss(answer.failure)
        if self._note_touched(answer.ends):
            # The first that draws. From now on they are a chain, which begins after this one.
            return self._miss("samples draw random numbers now and then")
        if not are_at({number: self._chain[number] for number in answer.ends}):
            self._void()
            return self._miss("the loop draws from the generators that samples draw from")
        if begins is not None and any(begins[n] != self._chain[n] for n in answer.ends):
            assert self._scout is not None
            self._scout.was_wrong()
            self._void()
            return False
        return True

    def _miss(self, why: str) -> bool:
        self._known.misses += 1
        if self._known.misses >= _MOST_MISSES:
            self._turn_off(why)
        return False

    def _look_at_verification(self, crew: Crew) -> None:
        assert self._verifying is not None
        number, expected, ends, began = self._verifying
        answer = crew.wait_for(number, 0.0)
        if answer is None:
            limit = max(_PATIENCE_S, _PATIENCE_TIMES * self._known.batch_s)
            if time.monotonic() - began > 2 * limit:
                self._turn_off("a process that makes batches ahead did not answer")
            return
        self._verifying = None
        if answer.failure:
            self._turn_off(answer.failure)
        elif answer.digest != expected or answer.ends != ends:
            self._turn_off("a batch made in another process is another one")
        else:
            self._known.verified = self._held
            if not self._known.draws:
                self._work()

    # Whether it is worth it.

    def _note_period(self, *, is_ahead: bool) -> None:
        now = time.perf_counter()
        last, self._returned = self._returned, (now, is_ahead)
        if (
            self._known.off
            or last is None
            or last[1] is not is_ahead
            or (self._crew is not None and not is_ahead)
        ):
            return
        makers = 1 if self._crew is None else len(self._crew.children)
        if self._known.note_period(now - last[0], is_ahead=is_ahead, makers=makers):
            if self._known.pays:
                self._say_how()
            else:
                self._turn_off("made ahead, batches did not come sooner")
        elif is_ahead and self._known.is_doubted:
            self.close()

    def _say_how(self) -> None:
        count = 0 if self._crew is None else len(self._crew.children)
        how = ", one after the other, as samples draw random numbers"
        if self._scout is not None:
            count -= 1
            how = "; one more draws the random numbers for them"
        self._say(
            f"batches are made ahead by {count} process{'' if count == 1 else 'es'}"
            f"{how if self._known.draws else ''}"
        )
