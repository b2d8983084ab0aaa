"""The search: the model wins unless another is surely faster and gives the same answers."""

import contextlib
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import slipstream
from slipstream import timing
from slipstream.errors import UsageError
from slipstream.infer import known, optimize, search
from slipstream.infer.change import ENGINE, PRECISION, Change, Kind
from slipstream.infer.changes import around
from slipstream.infer.changes.compiled import Called
from slipstream.infer.optimized import Optimized
from slipstream.infer.row import Row
from tests.clock import replace_clock, sleep
from tests.infer.models import resnet, zoo


class Slow(nn.Module):
    """Takes a known time."""

    def __init__(self, seconds: float = 0.4) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sleep(self.seconds)
        return self.layer(x)


@pytest.fixture(autouse=True)
def told_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models take as long as they say."""
    replace_clock(monkeypatch, timing, search, optimize)


def engine(name: str, call: Callable[[nn.Module], Any], kind: Kind = "exact") -> Change:
    return Change(name, kind, ENGINE, lambda model, _: Called(model, call(model)))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A search that knows these engines alone."""

    def know(*engines: Change) -> None:
        for name in (
            "LAYOUTS",
            "LIBRARIES",
            "COMPILED",
            "PRECISIONS",
            "QUICKLY_QUANTIZED",
            "QUANTIZED",
        ):
            monkeypatch.setattr(known, name, ())
        monkeypatch.setattr(known, "QUICK", engines)
        monkeypatch.setattr("slipstream.infer.search.thread_counts", list)
        monkeypatch.setattr("slipstream.infer.search._FINAL_S", 1.5)

    yield know


def row(found: Optimized, name: str) -> Row:
    return next(row for row in found.rows if row.name == name)


EXAMPLE = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def faster(model: nn.Module) -> Callable[..., Any]:
    def call(x: torch.Tensor) -> Any:
        sleep(0.01)
        return model.layer(x)  # type: ignore[operator]

    return call


def test_what_is_faster_and_the_same_wins(only: Any) -> None:
    only(engine("quick", faster))
    model = Slow()
    found = slipstream.optimize_model(model, EXAMPLE)
    assert found.name == "quick"
    assert found.speed.low > 5
    assert found.model is not model
    assert torch.equal(found.model(EXAMPLE), model.layer(EXAMPLE))
    assert row(found, "quick").state == "won"
    assert row(found, "eager").state == "model"


def test_finite_garbage_is_rejected(only: Any) -> None:
    def garbage(model: nn.Module) -> Any:
        return lambda x: torch.full((len(x), 8), 0.5)

    only(engine("garbage", garbage))
    model = Slow()
    found = slipstream.optimize_model(model, EXAMPLE)
    assert found.model is model
    assert row(found, "garbage").state == "rejected"
    assert "error" in row(found, "garbage").why


def test_a_result_that_is_overwritten_is_rejected(only: Any) -> None:
    def graphed(model: nn.Module) -> Any:
        buffer = torch.empty(4, 8)
        return lambda x: buffer.copy_(model.layer(x))

    only(engine("graphed", graphed))
    found = slipstream.optimize_model(Slow(), EXAMPLE)
    assert row(found, "graphed").state == "rejected"
    assert "changes when the model is called again" in row(found, "graphed").why


def test_the_model_against_itself_returns_the_model(only: Any) -> None:
    only(engine("itself", lambda model: model))
    model = Slow()
    found = slipstream.optimize_model(model, EXAMPLE)
    assert found.model is model
    assert found.name == "eager"
    assert row(found, "itself").state == "slower"


def test_a_finalist_that_fails_in_the_last_round_is_a_row(
    only: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = search.Search._finish
    is_last: list[bool] = []

    def last(self: Any) -> Any:
        is_last.append(True)
        return finish(self)

    def wears_out(model: nn.Module) -> Any:
        def call(x: torch.Tensor) -> Any:
            if is_last:
                raise RuntimeError("worn out")
            return faster(model)(x)

        return call

    monkeypatch.setattr(search.Search, "_finish", last)
    only(engine("quick", faster), engine("wears out", wears_out))
    found = slipstream.optimize_model(Slow(), EXAMPLE)
    assert found.name == "quick"
    assert row(found, "wears out").state == "failed"
    assert row(found, "wears out").why == "in the last round: RuntimeError: worn out"


def test_the_table_has_intervals_and_what_is_missing_for_int8(
    monkeypatch: pytest.MonkeyPatch, only: Any
) -> None:
    only(engine("quick", faster))
    coarse = Change("coarse", "lossy", ENGINE, lambda model, _: model)
    monkeypatch.setattr(known, "QUANTIZED", (coarse,))
    said = str(slipstream.optimize_model(Slow(), EXAMPLE))
    between = r"; \d+\.\d\d to \d+\.\d\d x\n"
    assert re.search(r"\d+\.\d\d x .* won +quick\n.*" + between, said)
    assert re.search(r"\d+\.\d\d x .* inference-mode\n.*" + between, said)
    assert "not tried: coarse: only a task can tell whether coarser numbers do" in said


def test_a_hundredth_does_not_win(only: Any) -> None:
    def little(model: nn.Module) -> Any:
        other = Slow(0.99 * model.seconds)
        other.layer = model.layer
        return other

    only(engine("little", little))
    model = Slow(0.8)
    found = slipstream.optimize_model(model, EXAMPLE)
    assert found.model is model


def test_what_fails_is_a_row(only: Any) -> None:
    def raises(model: nn.Module) -> Any:
        raise RuntimeError("no kernel\nand many lines")

    def nan(model: nn.Module) -> Any:
        return lambda x: model.layer(x) * torch.nan

    only(engine("raises", raises), engine("nan", nan), engine("quick", faster))
    found = slipstream.optimize_model(Slow(), EXAMPLE)
    assert (row(found, "raises").state, row(found, "raises").why) == (
        "failed",
        "RuntimeError: no kernel",
    )
    assert row(found, "nan").state == "rejected"
    assert "no finite numbers" in row(found, "nan").why
    assert found.name == "quick"


def test_one_that_keeps_memory_is_rejected(only: Any) -> None:
    def hoards(model: nn.Module) -> Any:
        kept = []

        def call(x: torch.Tensor) -> torch.Tensor:
            kept.append(torch.ones(4_000_000))
            return model.layer(x)

        return call

    def fills_a_cache(model: nn.Module) -> Any:
        cache: list[torch.Tensor] = []

        def call(x: torch.Tensor) -> torch.Tensor:
            if len(cache) < 20:
                cache.append(torch.ones(2_000_000))
            return model.layer(x)

        return call

    only(engine("hoards", hoards), engine("fills a cache", fills_a_cache))
    found = slipstream.optimize_model(Slow(1.0), EXAMPLE)
    assert row(found, "hoards").state == "rejected"
    assert "MB more with each call" in row(found, "hoards").why
    assert found.name == "fills a cache"


def test_fewer_bits_win_only_where_they_are_admitted(only: Any) -> None:
    def half(model: nn.Module) -> Any:
        return lambda x: model.layer(x).bfloat16().float()

    only(engine("half", half, "mixed"))
    model = Slow()
    found = slipstream.optimize_model(model, EXAMPLE)
    assert found.model is model
    assert row(found, "half").why == "not admitted: accuracy='mixed' would"
    assert row(found, "half").speed.value > 5
    assert "With accuracy='mixed': half" in _verdict(found)
    assert slipstream.optimize_model(model, EXAMPLE, accuracy="mixed").name == "half"


def test_what_is_not_admitted_pushes_nothing_out(only: Any) -> None:
    def half(model: nn.Module) -> Any:
        return lambda x: model.layer(x).bfloat16().float()

    def halfway(model: nn.Module) -> Any:
        return Slow.forward.__get__(_with_layer(Slow(0.2), model.layer))

    only(engine("halfway", halfway), engine("half", half, "mixed"))
    found = slipstream.optimize_model(Slow(), EXAMPLE)
    assert row(found, "half").speed.value > 2 * row(found, "halfway").speed.value > 2
    assert found.name == "halfway"


def test_a_precision_that_is_far_behind_is_tried_once(
    only: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(engine("quick", faster))
    slow = Change(
        "slow bits", "mixed", PRECISION,
        lambda model, _: _with_layer(Slow(20.0), model.layer),
    )  # fmt: skip
    monkeypatch.setattr(known, "PRECISIONS", (slow,))
    found = slipstream.optimize_model(Slow(), EXAMPLE, accuracy="mixed")
    assert found.name == "quick"
    assert [row.name for row in found.rows if "slow bits" in row.name] == ["slow bits"]
    assert row(found, "slow bits").state == "slower"


def test_flags_that_a_variant_leaves_do_not_reach_the_next(only: Any) -> None:
    seen = []

    def leaves(model: nn.Module) -> Any:
        torch.set_num_threads(1)
        torch._C._set_mkldnn_enabled(False)
        return faster(model)

    def sees(model: nn.Module) -> Any:
        seen.append((torch.get_num_threads(), torch._C._get_mkldnn_enabled()))
        return faster(model)

    before = (torch.get_num_threads(), torch._C._get_mkldnn_enabled())
    only(engine("leaves", leaves), engine("sees", sees))
    slipstream.optimize_model(Slow(), EXAMPLE)
    assert seen[0] == before


def test_torchs_own_kernels_are_tried_and_onednn_is_put_back() -> None:
    seen = []
    model = around.WithoutOneDnn(
        Called(nn.Identity(), lambda x: seen.append(torch._C._get_mkldnn_enabled()))
    )
    before = torch._C._get_mkldnn_enabled()
    model(EXAMPLE)
    assert seen == [False]
    assert torch._C._get_mkldnn_enabled() == before


def _with_layer(model: Slow, layer: nn.Module) -> Slow:
    model.layer = layer  # type: ignore[assignment]
    return model


def test_coarse_numbers_are_judged_by_the_task(only: Any) -> None:
    def coarse(steps: float) -> Any:
        return lambda model: lambda x: (model.layer(x) * steps).round() / steps

    only(engine("fine", coarse(64), "lossy"), engine("coarse", coarse(0.5), "lossy"))
    model = Slow(0.1)
    own = torch.Generator().manual_seed(1)
    pictures = [torch.randn(100, 8, generator=own) for _ in range(12)]
    data = [(x, model.layer(x).argmax(1)) for x in pictures]

    def metric(model: Any, batch: Any) -> torch.Tensor:
        return (model(batch[0]).argmax(1) == batch[1]).float()

    found = slipstream.optimize_model(
        model, EXAMPLE, accuracy="lossy", metric=metric, data=data, max_drop=0.05
    )
    assert found.name == "fine"
    assert row(found, "coarse").state == "rejected"
    assert "score drops by" in row(found, "coarse").why
    assert row(found, "fine").drop is not None and "800 samples" in row(found, "fine").drop
    few = slipstream.optimize_model(
        model, EXAMPLE, accuracy="lossy", metric=metric, data=[(d[0][:9], d[1][:9]) for d in data]
    )
    assert few.model is model
    assert row(few, "fine").why.startswith("not shown")


def test_everything_is_as_before(only: Any) -> None:
    def meddles(model: nn.Module) -> Any:
        torch.manual_seed(99)
        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = True
        model.layer.weight.data.zero_()
        raise RuntimeError("no")

    only(engine("meddles", meddles), engine("quick", faster))
    model = Slow()
    model.train()
    model.layer.eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.layer.weight.grad = torch.ones(8, 8)
    torch.set_num_threads(2)
    torch.manual_seed(5)
    expected = torch.rand(1).item()
    torch.manual_seed(5)
    slipstream.optimize_model(model, EXAMPLE)
    assert torch.rand(1).item() == expected
    assert torch.get_num_threads() == 2
    assert not torch.backends.cudnn.benchmark
    assert model.training and not model.layer.training
    assert torch.equal(model.layer.weight.grad, torch.ones(8, 8))
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert model.layer.weight.requires_grad


def test_a_model_that_counts_its_calls_is_not_called(only: Any) -> None:
    class Counts(Slow):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x)

    only(engine("quick", faster))
    model = Counts()
    assert slipstream.optimize_model(model, EXAMPLE).name == "quick"
    assert model.calls == 0


def test_other_shapes_have_to_work(only: Any) -> None:
    def static(model: nn.Module) -> Any:
        def call(x: torch.Tensor) -> torch.Tensor:
            if len(x) != 4:
                raise ValueError("compiled for 4")
            return model.layer(x)

        return call

    only(engine("static", static))
    assert slipstream.optimize_model(Slow(), EXAMPLE).name == "static"
    found = slipstream.optimize_model(Slow(), EXAMPLE, also=[EXAMPLE[:1]])
    assert found.name == "eager"
    assert "fails for inputs of (1, 8): ValueError: compiled for 4" in row(found, "static").why


def test_without_time_the_model_itself(only: Any) -> None:
    only(engine("quick", faster))
    model = Slow()
    found = slipstream.optimize_model(model, EXAMPLE, budget_s=0)
    assert found.model is model
    assert row(found, "quick").why == "no time was left in the budget"


def test_what_is_not_wanted_is_left_out(only: Callable[..., None]) -> None:
    only(engine("torchscript", faster))
    found = slipstream.optimize_model(Slow(), EXAMPLE, without=["torchscript"], budget_s=20)
    assert found.name == "eager"
    assert row(found, "torchscript").why == "left out, as asked for"
    for wrong in (["nothing"], "torchscript"):
        with pytest.raises(UsageError, match=r"without is .*expected a list of torchscript"):
            slipstream.optimize_model(Slow(), EXAMPLE, without=wrong)


@pytest.mark.slow
def test_one_that_hangs_is_a_row() -> None:
    script = """
    import time, pytest, torch, slipstream
    from slipstream import timing
    from slipstream.infer import known, optimize, search
    from slipstream.infer.keeping import at_most
    from tests.clock import replace_clock
    from tests.infer.test_optimize import EXAMPLE, Slow, engine, faster, row
    known.LAYOUTS = known.COMPILED = known.PRECISIONS = ()
    search.thread_counts = lambda: []
    search._FINAL_S = 1.0
    replace_clock(pytest.MonkeyPatch(), timing, search, optimize)
    search.at_most = lambda seconds: at_most(min(seconds, 4.0))
    def hangs(model):
        while True:
            time.sleep(0.01)
    known.QUICK = (engine("quick", faster), engine("hangs", hangs))
    found = slipstream.optimize_model(Slow(), EXAMPLE, budget_s=900)
    print(found.name, row(found, "hangs").state, row(found, "hangs").why)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=110,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("quick failed not done after"), done.stderr


@pytest.mark.slow
def test_a_search_with_all_that_is_known() -> None:
    model = resnet(8, 1)
    example = torch.randn(2, 3, 32, 32)
    found = slipstream.optimize_model(model, example, budget_s=60)
    torch.testing.assert_close(found.model(example), model.eval()(example), rtol=1e-3, atol=1e-4)
    states = {each.state for each in found.rows}
    assert states & {"won", "slower", "passed"}
    assert all(each.why for each in found.rows)
    assert row(found, "fold").error < 1e-5
    assert "eager" in str(found)


@pytest.mark.parametrize("name", ["encoder", "lstm", "branching", "detector"])
def test_inputs_and_results_of_every_form(only: Any, name: str) -> None:
    only(engine("itself", lambda model: model))
    model, example = zoo()[name]
    found = slipstream.optimize_model(model, example)
    # On one thread it may be faster than the model, and than what is fastest not.
    assert row(found, "itself").state in ("slower", "passed", "won"), row(found, "itself").why


def test_a_model_that_draws_is_told(only: Any) -> None:
    class Draws(nn.Module):
        count = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Draws.count += 1
            return x + Draws.count

    only()
    with pytest.raises(UsageError, match="other results from call to call"):
        slipstream.optimize_model(Draws(), EXAMPLE)


def test_wrong_calls_are_told() -> None:
    model = nn.Linear(8, 8)
    with pytest.raises(UsageError, match="has parameters without a shape"):
        slipstream.optimize_model(torch.nn.LazyLinear(8), torch.ones(1, 4))
    with pytest.raises(UsageError, match=r"a function; expected a torch.nn.Module"):
        slipstream.optimize_model(lambda x: x, EXAMPLE)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected one of 'exact', 'mixed', 'lossy'"):
        slipstream.optimize_model(model, EXAMPLE, accuracy="fp32")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs metric and data"):
        slipstream.optimize_model(model, EXAMPLE, accuracy="lossy")
    with pytest.raises(UsageError, match="belong together"):
        slipstream.optimize_model(model, EXAMPLE, data=[1])
    with pytest.raises(UsageError, match="example_inputs is a str"):
        slipstream.optimize_model(model, "8x8")


def test_threads_are_put_back() -> None:
    seen = []
    model = around.Threads(Called(nn.Identity(), lambda x: seen.append(torch.get_num_threads())), 1)
    before = torch.get_num_threads()
    model(EXAMPLE)
    assert seen == [1]
    assert torch.get_num_threads() == before


def _verdict(found: Optimized) -> str:
    from slipstream.infer.text import verdict_of

    return verdict_of(found)


class Merging(nn.Linear):
    """Does more than switch: merges a change into its weight for evaluation."""

    merged = False

    def train(self, mode: bool = True) -> "Merging":
        super().train(mode)
        if self.merged == mode:
            self.weight.data += -1.0 if mode else 1.0
            self.merged = not mode
        return self


def test_a_model_that_does_more_than_switch_is_as_before(only: Any) -> None:
    only(engine("itself", lambda model: model))
    model = Merging(8, 8)
    before = model.weight.detach().clone()
    slipstream.optimize_model(model, EXAMPLE, budget_s=2)
    assert (model.training, model.merged) == (True, False)
    assert torch.equal(model.weight, before)


def test_what_fails_far_from_the_example_is_rejected(only: Any) -> None:
    def log_of_sigmoid(model: nn.Module) -> Any:
        return lambda x: model.layer(x).sigmoid().log()

    class Model(Slow):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.logsigmoid(super().forward(x))

    only(engine("naive", log_of_sigmoid))
    found = slipstream.optimize_model(Model(), EXAMPLE)
    assert row(found, "naive").state == "rejected"
    assert "far from the example" in row(found, "naive").why


@pytest.mark.timeout(120, method="thread")  # the alarm is the search's
def test_a_limit_cannot_be_caught_and_an_exit_is_a_row(only: Any) -> None:
    def deaf(model: nn.Module) -> Any:
        def call(x: torch.Tensor) -> torch.Tensor:
            for _ in range(300):
                with contextlib.suppress(Exception):
                    time.sleep(0.1)
            return model(x)

        return call

    only(engine("leaves", lambda model: sys.exit(3)), engine("deaf", deaf))
    start = time.perf_counter()
    found = slipstream.optimize_model(Slow(0.004), EXAMPLE, budget_s=10)
    assert time.perf_counter() - start < 20
    assert row(found, "leaves").state == "failed"
    assert "not done after" in row(found, "deaf").why


def test_data_may_be_a_generator_and_inference_mode_be_left_out(only: Any) -> None:
    only()
    found = slipstream.optimize_model(
        Slow(), EXAMPLE, metric=lambda model, batch: model(batch).mean(1),
        data=(EXAMPLE for _ in range(6)), without=["inference-mode"], budget_s=8,
    )  # fmt: skip
    assert row(found, "inference-mode").why == "left out, as asked for"


def test_no_more_threads_than_the_caller_has() -> None:
    before = torch.get_num_threads()
    try:
        for own in (1, 4):
            torch.set_num_threads(own)
            assert max(around.thread_counts(), default=0) < own
    finally:
        torch.set_num_threads(before)


def test_results_that_cannot_be_compared_are_told() -> None:
    class Sparse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_sparse()

    with pytest.raises(UsageError, match="cannot be compared"):
        slipstream.optimize_model(Sparse(), torch.eye(4), budget_s=0)


def test_a_model_that_gives_nan_is_told(only: Any) -> None:
    only(engine("same", lambda model, _: model))
    torn = Slow()
    with torch.no_grad():
        next(torn.parameters()).view(-1)[0] = float("nan")
    said = str(slipstream.optimize_model(torn, EXAMPLE))
    assert re.search(r"it gives NaN in [\d,]+ of [\d,]+ results", said)
    assert "NaN" not in str(slipstream.optimize_model(Slow(), EXAMPLE))
