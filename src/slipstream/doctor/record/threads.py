"""Follows the training loop into the thread that it runs in, and ends it there, too."""

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from slipstream.doctor.record.sampler import Sampler
from slipstream.doctor.record.stages import StageLog
from slipstream.doctor.record.trace import Trace
from slipstream.launch import WindowEnded, is_waited_for
from slipstream.tracebacks import hide_own_frames

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session

_FEW_BATCHES = 8  # a look at the data: no loop that another thread could not take over from
_LOOK_S = 0.05
_UNWINDING_S = 5.0
_STUCK_S = 10.0
_IDLE_CPU = 0.1  # of a core: a process that waits uses less


class LoopTrace(Trace):
    """Spans of the thread that was followed last."""

    since = 0

    @property
    def is_loops_thread(self) -> bool:
        """Whether the thread that calls is the one."""
        return threading.get_ident() == self._thread

    def follow(self) -> None:
        """The thread that calls is the one from now on; forget the spans of others."""
        self._thread = threading.get_ident()
        self.since = time.perf_counter_ns()
        self.spans, self.current, self.loop_code = [], "", None


class LoopStages(StageLog):
    """Stages of the thread that was followed last."""

    def follow(self) -> None:
        """The thread that calls is the one from now on."""
        self._thread = threading.get_ident()
        self._stack, self.current = [], ""


class LoopSampler(Sampler):
    """Looks at the thread that was followed last."""

    def follow(self) -> None:
        """The thread that calls is the one from now on; forget the lines of others."""
        self._watched = threading.get_ident()
        self._counts.clear()
        self._samples.clear()


class ThreadHooks:
    """Knows which thread trains: the first one that steps, and before that, the one that iterates
    over a loader.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._own = threading.current_thread()
        self._loops: threading.Thread = self._own
        self.on_stuck: Callable[[], None] | None = None  # nobody can end the thread that waits

    def install(self) -> None:
        """Replace what is hooked; `Session` puts it back. Behind the hooks of loaders."""
        from slipstream.loader.loader import Loader

        for kind in (DataLoader, Loader):
            self._session.patches.replace(kind, "__iter__", self._wrap_iter)
        self._session.patches.replace(threading.Thread, "start", self._wrap_start)

    def meet(self, *, steps: bool) -> None:
        """A thread that is not the loop's iterates over a loader, or `steps`. Raises `WindowEnded`
        behind the window.
        """
        session = self._session
        if not session.trace.is_on or session.trace.is_loops_thread:
            return
        thread = _started_thread()
        if thread is None:
            return  # autograd's own: steps in a backward pass belong to who began it
        if session.has_ended:
            session.end()
        elif not session.steps_seen and (steps or session.batches_seen < _FEW_BATCHES):
            self._loops = thread
            session.follow()

    def wait(self) -> None:
        """What Python does at the end of a script: for threads that train, or may yet begin."""
        while not self._session.has_ended and self._may_train():
            time.sleep(_LOOK_S)
        if self._session.has_ended and self._loops is not self._own:
            self._loops.join(_UNWINDING_S)

    def watch_the_rest(self) -> None:
        """The loop was ended in a thread of its own. Others may wait for it without an end."""
        if self.on_stuck is not None and threading.current_thread() is not self._own:
            threading.Thread(target=self._watch, name="slipstream-end", daemon=True).start()

    def _may_train(self) -> bool:
        if self._loops is self._own:
            if self._session.has_begun:
                return False
            return any(map(is_waited_for, threading.enumerate()))
        return is_waited_for(self._loops)

    def _watch(self) -> None:
        """Until the script has stood still at one place for long, using no processor."""
        place, since, used = None, time.monotonic(), time.process_time()
        while self._session.is_recording:
            time.sleep(10 * _LOOK_S)
            frame = sys._current_frames().get(self._own.ident or 0)
            here = None if frame is None else (frame.f_code, frame.f_lasti)
            took, cpu = time.monotonic() - since, time.process_time() - used
            if here != place or cpu > _IDLE_CPU * max(1.0, took):
                place, since, used = here, time.monotonic(), time.process_time()
            elif took > _STUCK_S and self.on_stuck is not None:
                self.on_stuck()
                return

    def _wrap_iter(self, original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            self.meet(steps=False)
            return original(loader)

        return iterate

    def _wrap_start(self, original: Any) -> Any:
        def start(thread: Any) -> None:
            report = getattr(thread, "_invoke_excepthook", None)
            if report is not None and self._session.trace.is_on:
                thread._invoke_excepthook = _quiet(report)
            original(thread)

        return start


def _quiet(report: Callable[[Any], None]) -> Callable[[Any], None]:
    """What tells of an error that ends a thread: not of the window's end, not of our frames."""

    def tell(thread: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, WindowEnded):
            return
        if error is not None:
            hide_own_frames(error)
        report(thread)

    return tell


def _started_thread() -> threading.Thread | None:
    """The thread that calls, if Python has started it."""
    here = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident == here:
            return None if isinstance(thread, threading._DummyThread) else thread
    return None
