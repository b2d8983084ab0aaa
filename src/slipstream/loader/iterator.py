"""One iteration over a loader: starts what makes batches, counts what was delivered."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slipstream.loader.bad_samples import NothingLeft
from slipstream.loader.made import Made
from slipstream.loader.ranks import rank_and_world
from slipstream.loader.sources import Source, open_source

if TYPE_CHECKING:
    from slipstream.loader.live import LiveLine


class LoaderIterator:
    """Iterator over batches. Gives out torch's iterator's attributes where it stands on one."""

    def __init__(
        self, loader: Any, *, base_seed: int = 0, torch_iterator: Any = None,
        sampled: Iterator[Any] | None = None, generator: bytes | None = None, run: int = 0,
    ) -> None:  # fmt: skip
        """`run` is the number of an iteration that has begun already."""
        self._loader = loader
        self._base_seed = base_seed
        self._torch_iterator = torch_iterator
        self._sampled = sampled
        self._generator = generator
        self._source: Source | None = None
        self._run = run
        self._returned_at: float | None = None
        self._ended = False
        self._line: LiveLine | None = None

    def __iter__(self) -> "LoaderIterator":
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        loader, stats = self._loader, self._loader._stats
        began = time.perf_counter()
        if self._returned_at is not None:
            stats.loop_s += began - self._returned_at
            self._returned_at = None
        source = self._source or self._start()
        while True:
            try:
                task, made, batch = next(source)
            except StopIteration:
                self._finish()
                raise
            except Exception:
                # The loop may catch it and go on: this batch has been had, too.
                failed = source.take_failed()
                if failed is not None:
                    loader._position.deliver(self._run, failed.before, failed.after)
                raise
            loader._position.deliver(self._run, task.before, task.after)
            self._note(made)
            if made.batch is not None or not made.bad:
                break
        made.batch = None
        if loader._static_batch is not None:
            batch = loader._static_batch.fill(batch)
        self._returned_at = time.perf_counter()
        stats.add(made, self._returned_at - began, source.waiting)
        source.count_copies(stats)
        source.observe(self._returned_at - began)
        if self._line is not None:
            self._line.update(made.samples, self._returned_at - began, source.waiting)
        return batch

    def _note(self, made: Made) -> None:
        left_out = len(made.bad) if self._loader.on_error == "skip" else 0
        self._loader._bad_samples.note(made.samples + left_out, made.bad)
        if made.batch is None and made.bad and rank_and_world()[1] > 1:
            raise NothingLeft(
                f"Every sample of a batch is bad; the last: {made.bad[-1]}. Left out on one rank"
                ' only, it would make the others wait for ever. Use on_error="substitute".'
            )

    def _start(self) -> Source:
        if not self._run:
            self._loader._follow_sampler()
            self._run = self._loader._position.begin(self._generator)
        self._source = open_source(
            self._loader, self._base_seed, self._torch_iterator, self._sampled
        )
        if self._loader.progress:
            from slipstream.loader.live import open_line

            self._line = open_line(self._loader)
        return self._source

    def close(self) -> None:
        """End what makes batches. Idempotent."""
        self._ended = True
        if self._line is not None:
            self._line.close()
        if self._source is not None:
            self._source.close()

    def _finish(self) -> None:
        self._loader._position.finish(self._run)
        self.close()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and "_torch_iterator" in self.__dict__:
            if self._torch_iterator is not None:
                return getattr(self._torch_iterator, name)
            if name == "_workers":
                return (self._source or self._start()).processes
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")
