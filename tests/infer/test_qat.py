"""Training with few bits: what the weights are, that it learns, and what is left afterwards."""

import io
import math

import pytest
import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.qat import convert_qat, integer, prepare_qat
from slipstream.infer.qat.coded import CodedLayer
from slipstream.infer.qat.formats import FORMATS, packed, unpacked
from slipstream.infer.qat.integer import IntegerLayer
from slipstream.infer.qat.layer import QatLayer
from slipstream.infer.qat.ranges import ActivationRange

LEVELS = {8: 255, 4: 15, 2: 4, "ternary": 3, "binary": 2}
EVERY = list(LEVELS)
ALL = {"skip_first_last": False}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


def bytes_overflow():
    """Whether this processor adds products of bytes in 16 bits: x86 without VNNI."""
    made = integer.IntegerLayer(prepare_qat(nn.Linear(2, 1), torch.ones(1, 2), **ALL).eval())
    made.activation_zero.zero_()
    made.stored.fill_(127)
    made._forget()
    apart, largest = integer._compare(made)
    return apart > 0.1 * largest


def network(width=8):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Residual(width),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(4 * width, 16),
        nn.ReLU(),
        nn.Linear(16, 4),
    )


needs_exact_kernels = pytest.mark.skipif(
    bytes_overflow(),
    reason="this processor's sums of products of bytes overflow: layers compute in floating-point",
)


def pictures(count, seed):
    """Stripes in noise, wide or narrow, upright or not: which of the four?"""
    own = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=own)
    images = torch.randn(count, 1, 8, 8, generator=own)
    for image, label in zip(images, labels.tolist(), strict=True):
        width = 1 + label // 2
        stripes = torch.where(torch.arange(8) % (2 * width) < width, 0.8, -0.8)
        image.add_(stripes[:, None] if label % 2 else stripes[None, :])
    return images, labels


def fit(model, steps, rate):
    images, labels = pictures(512, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for step in range(steps):
        rows = slice(step * 64 % 512, step * 64 % 512 + 64)
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def accuracy(model):
    images, labels = pictures(512, seed=2)
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small are slower on more, the more so the busier the machine is."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    return fit(network(), 100, 5e-3)


@pytest.fixture(scope="module")
def images():
    return pictures(64, seed=3)[0]


def quantized_layers(model):
    return [part for part in model.modules() if isinstance(part, QatLayer)]


@pytest.mark.parametrize("bits", EVERY)
def test_weights_of_a_channel_are_as_few_numbers_as_the_bits_allow(trained, images, bits):
    made = prepare_qat(trained, images, bits=bits)
    for layer in quantized_layers(made):
        for channel in layer.weight.flatten(1):
            assert len(channel.detach().unique()) <= LEVELS[bits]
        step = layer.form.step_of(layer.layer.weight)
        codes = layer.weight / step
        torch.testing.assert_close(codes, codes.round(), atol=1e-4, rtol=0)
    widest = max(len(c.unique()) for p in quantized_layers(made) for c in p.weight.flatten(1))
    assert widest > LEVELS[bits] // 8


@pytest.mark.parametrize("bits", EVERY)
def test_training_with_few_bits_learns_the_task(trained, images, bits):
    learnt = accuracy(trained)
    assert learnt > 0.9
    made = fit(prepare_qat(trained, images, bits=bits), 24, 2e-3)
    assert accuracy(made) > learnt - 0.04
    assert accuracy(convert_qat(made).model) > learnt - 0.04


def test_training_is_what_brings_the_accuracy_back(trained, images):
    """The test above could be passed by quantization that changes nothing."""
    made = prepare_qat(trained, images, bits="binary", activation_bits=2, skip_first_last=False)
    assert accuracy(made.eval()) < accuracy(trained) - 0.1
    assert accuracy(fit(made, 32, 2e-3)) > accuracy(trained) - 0.06


@pytest.mark.parametrize("bits", EVERY)
def test_gradients_pass_to_every_weight(trained, images, bits):
    made = prepare_qat(trained, images, bits=bits).train()
    made(images).square().mean().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_gradient_of_a_weight_is_that_of_its_quantized_value():
    weight = torch.randn(3, 5, requires_grad=True)
    factor = torch.randn(3, 5)
    (FORMATS[4].quantized(weight) * factor).sum().backward()
    torch.testing.assert_close(weight.grad, factor)


@pytest.mark.parametrize("bits", [4, 2, "ternary", "binary"])
def test_steps_have_the_least_squared_error_for_normal_weights(bits):
    form = FORMATS[bits]
    weight = torch.erfinv(torch.linspace(-0.99995, 0.99995, 20001)).unsqueeze(0) * math.sqrt(2)
    step = form.step_of(weight)

    def error(times):
        return float((form.codes_of(weight, step * times) * step * times - weight).square().mean())

    assert error(1.0) < min(error(0.9), error(1.1))


@pytest.mark.parametrize("bits", EVERY)
def test_packed_weights_are_the_same_and_as_small_as_they_should_be(bits):
    form = FORMATS[bits]
    weight = torch.randn(5, 7, 3)  # 105: no multiple of what a byte holds
    codes = form.codes_of(weight, form.step_of(weight))
    stored = packed(codes, form)
    assert stored.nbytes == math.ceil(105 * form.stored_bits / 8)
    assert torch.equal(unpacked(stored, form, weight.shape).float(), codes)


@pytest.mark.parametrize("bits", EVERY)
def test_folding_the_batch_norm_before_or_after_quantization_is_the_same(bits):
    """Why the batch norm may go on learning beside quantized weights."""
    form, weight = FORMATS[bits], torch.randn(6, 4, 3, 3)
    factor = torch.tensor([0.1, 3.0, -2.0, 1e-3, -0.5, 7.0]).reshape(-1, 1, 1, 1)
    torch.testing.assert_close(form.quantized(weight * factor), form.quantized(weight) * factor)


@pytest.mark.parametrize("bits", EVERY)
def test_what_is_converted_gives_what_was_trained(trained, images, bits):
    made = fit(prepare_qat(trained, images, bits=bits), 4, 2e-3)
    converted = convert_qat(made).model
    assert not any(isinstance(part, QatLayer | ActivationRange) for part in converted.modules())
    with torch.no_grad():
        one, other = converted(images), made(images)
    # An input that lies between two steps may be rounded to either.
    assert float((one - other).abs().mean()) < 1e-3 * float(other.abs().mean()) + 1e-5
    assert float((one - other).abs().max()) < 0.02 * float(other.abs().max())


def steps_seen(model, images, kind):
    """What each quantized layer takes its inputs for, in steps."""
    seen = []

    def look(layer, args):
        if isinstance(layer, QatLayer):
            step, zero = layer.activations.step_and_zero()
        else:
            step, zero = layer.activation_step, layer.activation_zero
        seen.append((args[0] / step).round().add(zero).clamp(0, 255))

    handles = [p.register_forward_pre_hook(look) for p in model.modules() if isinstance(p, kind)]
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    return seen


@needs_exact_kernels
def test_whole_numbers_are_within_one_step_of_what_was_trained(trained, images):
    made = fit(prepare_qat(trained, images, bits=8, skip_first_last=False), 4, 2e-3)
    converted = convert_qat(made)
    assert [line.arithmetic for line in converted.report.lines] == ["integer"] * 4
    trained_steps = steps_seen(made, images, QatLayer)
    integer_steps = steps_seen(converted.model, images, IntegerLayer)
    assert len(trained_steps) == len(integer_steps) == 4
    for one, other in zip(trained_steps, integer_steps, strict=True):
        assert float((one - other).abs().max()) <= 1
        assert float((one != other).float().mean()) < 0.02


@needs_exact_kernels
def test_eight_bits_run_in_kernels_for_whole_numbers(trained, images):
    converted = convert_qat(prepare_qat(trained, images, bits=8)).model
    with torch.no_grad():
        converted(images)  # packs
        with torch.profiler.profile() as profile:
            converted(images)
    called = {event.key for event in profile.key_averages()}
    assert {"onednn::qconv_pointwise", "onednn::qlinear_pointwise"} <= called


@needs_exact_kernels
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler, about itself
def test_the_compiler_makes_kernels_for_whole_numbers_of_it(trained, images):
    from torch._dynamo.utils import counters

    converted = convert_qat(prepare_qat(trained, images, bits=8, skip_first_last=False)).model
    counters.clear()
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        found = torch.compile(converted, fullgraph=True)(images)
    assert counters["inductor"]["qconv_weight_prepack_matcher_count"] == 2
    assert counters["inductor"]["qlinear_weight_prepack_matcher_count"] == 2
    with torch.no_grad():
        torch.testing.assert_close(found, converted(images), atol=0.05, rtol=0.05)


@needs_exact_kernels
def test_layers_without_a_kernel_are_said_to_be_simulated(trained, images):
    padded = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.Conv2d(4, 4, 1)
    )
    report = convert_qat(prepare_qat(padded, images, skip_first_last=False)).report
    assert [line.arithmetic for line in report.lines] == ["float", "integer"]
    assert "padding" in report.lines[0].why
    assert report.speed.startswith("1 of 2 quantized layers compute with whole numbers, the others")
    low = convert_qat(prepare_qat(trained, images, bits=2)).report
    assert low.speed.startswith("simulated")
    assert convert_qat(prepare_qat(trained, images), integers=False).report.speed == low.speed
    assert {line.arithmetic for line in low.lines} == {"float"}
    assert "not faster" in str(low)


def halved(layer, x):
    """A kernel that overflows."""
    return CodedLayer.forward(layer, x) / 2


def test_layers_whose_kernel_overflows_compute_in_floating_point(trained, images, monkeypatch):
    monkeypatch.setattr(IntegerLayer, "in_whole_numbers", halved)
    report = convert_qat(prepare_qat(trained, images, bits=8)).report
    assert {line.arithmetic for line in report.lines} == {"float"}
    assert "away from what was trained" in report.lines[1].why


@pytest.mark.parametrize("way", ["copied", "state", "compiled"])
def test_a_model_that_comes_to_a_processor_whose_kernels_overflow_stays_right(
    trained, images, monkeypatch, way
):
    monkeypatch.setattr(IntegerLayer, "in_whole_numbers", CodedLayer.forward)
    made = prepare_qat(trained, images, bits=8)
    converted = convert_qat(made).model
    assert "integer" in {line.arithmetic for line in convert_qat(made).report.lines}
    with torch.no_grad():
        right = converted(images)
        file = io.BytesIO()
        torch.save(converted.state_dict() if way == "state" else converted, file)
        monkeypatch.setattr(IntegerLayer, "in_whole_numbers", halved)
        monkeypatch.setattr(IntegerLayer, "_as_graph", halved)
        file.seek(0)
        found = torch.load(file, weights_only=way == "state")
        if way == "state":
            converted.load_state_dict(found)
            found = converted
        if way == "compiled":
            found = torch.compile(found, backend="eager", fullgraph=True)
        assert torch.equal(found(images), right)


def saved_bytes(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return len(file.getvalue())


@pytest.mark.parametrize(("bits", "times"), [(8, 3.5), (4, 6.5), (2, 12), ("binary", 20)])
def test_files_are_as_much_smaller_as_the_report_says(bits, times):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3)))
    inputs = torch.randn(8, 512)
    converted = convert_qat(prepare_qat(model, inputs, bits=bits, skip_first_last=False))
    smaller = saved_bytes(model) / saved_bytes(converted.model)
    assert smaller > times
    assert converted.report.smaller == pytest.approx(smaller, rel=0.15)
    assert converted.report.bytes_before == sum(p.nbytes for p in model.parameters())


def test_a_converted_model_is_saved_and_read_again(trained, images):
    converted = convert_qat(prepare_qat(trained, images, bits=8)).model
    other = convert_qat(prepare_qat(network(), images / 3, bits=8)).model
    with torch.no_grad():
        right = converted(images)
        other(images)  # packs the weights that are replaced
        other.load_state_dict(converted.state_dict())
        assert torch.equal(other(images), right)
        file = io.BytesIO()
        torch.save(converted, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(images), right)


def test_the_model_and_the_callers_random_numbers_stay(trained, images):
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    trained[1].train()  # as someone may want it
    torch.manual_seed(5)
    state = torch.get_rng_state()
    made = prepare_qat(trained, images)
    convert_qat(made)
    assert torch.equal(torch.get_rng_state(), state)
    assert trained[1].training
    assert not trained[0].training
    trained[1].eval()
    for name, value in trained.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not any(isinstance(part, QatLayer) for part in trained.modules())


def test_a_batch_norm_in_evaluation_stays_in_evaluation(trained, images):
    model = network().train()
    model[3].norm.eval()
    made = prepare_qat(model, images)
    assert made[3].conv.training
    assert not made[3].conv.norm.training
    assert isinstance(made[3].norm, nn.Identity)


def test_the_first_and_the_last_layer_are_the_ones_that_are_called_first_and_last(images):
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.end = nn.Linear(8, 2)
            self.middle = nn.Linear(8, 8)
            self.begin = nn.Linear(64, 8)

        def forward(self, x):
            return self.end(self.middle(self.begin(x.flatten(1))))

    made = prepare_qat(Backwards(), images)
    assert type(made.begin) is type(made.end) is nn.Linear
    assert isinstance(made.middle, QatLayer)


def test_a_layer_that_is_used_twice_is_one_layer(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(64, 64)
            self.same = self.one

        def forward(self, x):
            return self.same(self.one(x.flatten(1)))

    made = prepare_qat(Twice(), images, bits=4, skip_first_last=False)
    assert made.one is made.same
    converted = convert_qat(made)
    assert converted.model.one is converted.model.same
    assert isinstance(converted.model.one, CodedLayer)
    assert len(converted.report.lines) == 1


def test_batch_norms_with_any_factor_are_folded(images):
    model = network().eval()
    norm = model[3].norm
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([-2.0, 0.0, 1e-9, 1.0, -1e-3, 3.0, -1.0, 0.5]))
        norm.bias.uniform_(-1, 1)
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.1, 4)
    for bits in EVERY:
        made = prepare_qat(model, images, bits=bits)
        converted = convert_qat(made).model
        assert isinstance(converted[3].conv, CodedLayer)
        with torch.no_grad():
            found, right = converted[:4](images), made[:4](images)
        assert float((found - right).abs().mean()) < 1e-3 * float(right.abs().mean())


def test_a_linear_layer_with_its_batch_norm_is_one_layer():
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).eval()
    inputs = torch.randn(16, 8)
    made = prepare_qat(model, inputs, bits=4, skip_first_last=False)
    assert made[0].norm is not None
    torch.testing.assert_close(convert_qat(made).model(inputs), made(inputs), atol=0.01, rtol=0.01)


@needs_exact_kernels
def test_layers_of_a_transformer_are_called_and_not_gone_around():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    inputs = torch.randn(3, 5, 16)
    made = prepare_qat(layer.eval(), inputs, skip_first_last=False)
    assert len(quantized_layers(made)) == 2
    assert all(float(each.activations.high) > 0 for each in quantized_layers(made))
    converted = convert_qat(made).model
    with torch.no_grad(), torch.profiler.profile() as profile:
        found = converted(inputs)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["onednn::qlinear_pointwise"] == 2
    torch.testing.assert_close(found, made(inputs), atol=0.05, rtol=0.05)


def test_ranges_follow_training_and_stay_in_evaluation():
    limits = ActivationRange(8).train()
    limits(torch.tensor([-1.0, 3.0]))
    assert (float(limits.low), float(limits.high)) == (-1.0, 3.0)
    limits(torch.tensor([0.0, 13.0]))
    assert float(limits.high) == pytest.approx(4.0)
    limits(torch.tensor([0.0, float("inf")]))
    assert float(limits.high) == pytest.approx(4.0)
    limits.eval()(torch.tensor([100.0]))
    assert float(limits.high) == pytest.approx(4.0)
    assert float(limits(torch.tensor([0.0]))) == 0.0


def test_few_bits_cut_what_is_rare():
    own = torch.Generator().manual_seed(0)
    values = torch.randn(4096, generator=own).relu()
    values[7] = 12.0
    limits = ActivationRange(4).train()
    limits(values)
    assert float(limits.high) < 9
    assert len(limits.eval()(values).unique()) <= 16


def test_what_cannot_work_is_said(trained, images):
    with pytest.raises(UsageError, match=r"bits is 3; expected one of 8, 4, 2"):
        prepare_qat(trained, images, bits=3)
    with pytest.raises(UsageError, match="activation_bits is 16"):
        prepare_qat(trained, images, activation_bits=16)
    with pytest.raises(UsageError, match="skip_first_last=False"):
        prepare_qat(nn.Linear(4, 2), torch.ones(1, 4))
    with pytest.raises(UsageError, match="prepare_qat"):
        convert_qat(trained)


def test_what_a_model_asks_of_a_layer_is_answered() -> None:
    layer = QatLayer(torch.nn.Linear(4, 8), None, FORMATS[8], 8)
    assert layer.out_features == 8
    with pytest.raises(AttributeError):
        layer.nonsense  # noqa: B018


def test_wrong_calls_of_prepare_qat_are_told() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    with pytest.raises(UsageError, match=r"fails itself with inputs of \(2, 3\)"):
        prepare_qat(model, torch.zeros(2, 3))
    made = prepare_qat(model, torch.zeros(2, 4))
    with pytest.raises(UsageError, match="made ready already"):
        prepare_qat(made, torch.zeros(2, 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_prepared_model_may_have_another_type(dtype) -> None:
    layers = [nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)]
    made = prepare_qat(nn.Sequential(*layers), torch.randn(4, 8), bits=4).to(dtype)
    made.train()
    made(torch.randn(4, 8, dtype=dtype)).sum().backward()
    assert torch.isfinite(layers_of(made)[1].weight.grad).all()


def layers_of(model):
    return [part for part in model.modules() if isinstance(part, nn.Linear)]


def test_another_default_type_changes_nothing() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        made = prepare_qat(
            nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)]), torch.randn(4, 8), bits=4
        )
        made.train()(torch.randn(4, 8)).sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("bits", list(FORMATS))
def test_a_channel_of_zeros_in_half_precision_stays_finite(bits) -> None:
    weight = torch.randn(4, 8).half()
    weight[1] = 0
    found = FORMATS[bits].quantized(weight)
    assert torch.isfinite(found).all()
    assert float(found[1].abs().max()) < 1e-6


def test_the_report_has_each_layer_once() -> None:
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x)

    trained = prepare_qat(nn.Sequential(Inside(), Inside(), Inside()), torch.randn(4, 8), bits=4)
    lines = convert_qat(trained).report.lines
    assert [(line.name, line.weights) for line in lines] == [
        ("0.layer", "float"), ("1.layer", "4 bit"), ("2.layer", "float"),
    ]  # fmt: skip
    alone = prepare_qat(nn.Linear(8, 8), torch.randn(4, 8), bits=4, skip_first_last=False)
    assert [line.weights for line in convert_qat(alone).report.lines] == ["4 bit"]


def test_converted_convolutions_give_what_can_be_flattened_by_a_view():
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.out = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(128, 4)

        def forward(self, x):
            x = torch.relu(self.two(torch.relu(self.one(x))))
            return self.out(x.view(x.size(0), -1))

    images, _ = pictures(4, seed=3)
    trained = prepare_qat(Viewing(), images).eval()
    torch.testing.assert_close(convert_qat(trained).model(images), trained(images))


def test_a_batch_without_samples_changes_no_range():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    trained = prepare_qat(model, torch.randn(16, 8), skip_first_last=False).train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    assert trained(torch.empty(0, 8)).shape == (0, 8)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


@pytest.mark.parametrize("shape", [(0, 5, 8), (2, 0, 8), (0, 8)])
def test_a_batch_without_samples_has_the_shape_of_one(shape):
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    trained = prepare_qat(model, torch.randn(16, 8), skip_first_last=False).eval()
    found = convert_qat(trained).model(torch.empty(shape))
    assert found.shape == trained(torch.empty(shape)).shape == (*shape[:-1], 4)


def test_a_convolution_of_no_samples():
    model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Conv1d(8, 4, 1))
    trained = prepare_qat(model, torch.randn(3, 4, 20), skip_first_last=False).eval()
    assert convert_qat(trained).model(torch.empty(0, 4, 20)).shape == (0, 4, 18)
