"""Random numbers and shuffled orders: the same for ever, and without a pattern."""

import itertools
import math

import numpy as np
import pytest

from slipstream import _native

ONES = 0xFFFFFFFF


# Of the first version. A test that fails here means that trainings can no longer be repeated.
PHILOX_GOLDEN = [
    [761769973, 2525679261, 1359372720, 494081028],
    [4145484558, 758927291, 4092219482, 1634142314],
    [4170707486, 3269097761, 2816052701, 349030541],
]
ORDER_GOLDEN = {
    (4, 0, 0): [0, 3, 1, 1, 2],
    (1000, 1, 2): [472, 406, 142, 461, 536],
    (65536, 1, 2): [4338, 4247, 55906, 48786, 35135],
    (65537, 1, 2): [53779, 44777, 58560, 39015, 20145],
    (1281167, 42, 5): [74052, 356785, 539343, 459068, 8158],
    (4611686018427387904, 1, 0): [
        4029230693966655795,
        3704723610236889053,
        4044670081866186012,
        661182427291554659,
        3648104496588584005,
    ],
}


def philox_block(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x32-10 as its paper has it."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        even, odd = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (odd >> 32) ^ b ^ k, odd & ONES, (even >> 32) ^ d ^ m, even & ONES
        k, m = (k + 0x9E3779B9) & ONES, (m + 0xBB67AE85) & ONES
    return a, b, c, d


def philox_key(seed: int, epoch: int, purpose: int) -> tuple[int, ...]:
    counter = (seed & ONES, seed >> 32, epoch & ONES, epoch >> 32)
    return philox_block(counter, (purpose, 0))[:2]


def order_of(count: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return _native.Order(count, seed, epoch).at(np.arange(count))


def deviation(observed: np.ndarray, expected: float) -> float:
    """How far a chi-square sum lies from its mean, in standard deviations."""
    freedom = observed.size - 1
    total = ((observed - expected) ** 2 / expected).sum()
    return float((total - freedom) / math.sqrt(2 * freedom))


def test_the_paper_s_known_answers() -> None:
    assert philox_block((0,) * 4, (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert philox_block(*pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_numbers_are_the_documented_function_of_their_purpose() -> None:
    samples = [0, 1, 99, 2**31, 2**32 + 5, 2**62, -1]
    for seed, epoch, op in ((0, 0, 0), (7, 3, 5), (2**64 - 1, 2**40 + 1, ONES)):
        found = _native.philox(seed, epoch, np.array(samples), op, 3)
        assert (found.dtype, found.shape) == (np.uint32, (len(samples), 12))
        key = philox_key(seed, epoch, 1)
        for row, sample in zip(found.tolist(), samples, strict=True):
            halves = sample & ONES, (sample >> 32) & ONES
            blocks = [philox_block((*halves, op, block), key) for block in range(3)]
            assert row == list(itertools.chain(*blocks))


def test_numbers_never_change() -> None:
    found = _native.philox(1, 2, np.array([0, 1, 2**40]), 7, 1)
    assert found.tolist() == PHILOX_GOLDEN


def test_any_change_of_purpose_changes_all_numbers() -> None:
    samples = np.arange(1000)
    tables = [
        _native.philox(seed, epoch, samples, op, 2)
        for seed, epoch, op in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1 << 32, 0, 0))
    ]
    together = np.concatenate(tables)
    assert len(np.unique(together.view(np.uint64))) == together.size // 2
    longer = _native.philox(0, 0, samples, 0, 5)
    np.testing.assert_array_equal(longer[:, :8], tables[0])


def test_bits_are_fair() -> None:
    numbers = _native.philox(3, 0, np.arange(100_000), 0, 1)
    for bit in range(32):
        ones = int((numbers >> bit & 1).sum())
        assert abs(ones - numbers.size / 2) < 4.5 * math.sqrt(numbers.size / 4)


def test_shapes_and_limits_of_numbers() -> None:
    assert _native.philox(0, 0, np.empty(0, np.int64), 0, 2).shape == (0, 8)
    assert _native.philox(0, 0, np.arange(3), 0, 0).shape == (3, 0)
    for blocks in (-1, (1 << 20) + 1):
        with pytest.raises(ValueError, match="blocks is"):
            _native.philox(0, 0, np.arange(3), 0, blocks)
    for seed, epoch, op in ((-1, 0, 0), (2**64, 0, 0), (0, -1, 0), (0, 0, 2**32)):
        with pytest.raises(TypeError):
            _native.philox(seed, epoch, np.arange(3), op, 1)


AROUND_POWERS = sorted(
    {max(1, 2**bits + step) for bits in range(19) for step in (-1, 0, 1)}
    | {65_535, 65_537, 100_003}
)


@pytest.mark.parametrize("count", AROUND_POWERS)
def test_every_sample_comes_once(count: int) -> None:
    for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**64 - 1, 2**64 - 1)):
        np.testing.assert_array_equal(np.sort(order_of(count, seed, epoch)), np.arange(count))


@pytest.mark.parametrize("count", [2**40 + 1, 2**61 + 12345, 2**62 - 1, 2**62])
def test_huge_orders_have_no_repetitions(count: int) -> None:
    order = _native.Order(count, 5, 6)
    places = np.concatenate([np.arange(50_000), np.arange(count - 50_000, count)])
    samples = order.at(places)
    assert len(np.unique(samples)) == len(places)
    assert samples.min() >= 0 and samples.max() < count
    thirds = np.bincount(samples // -(-count // 64), minlength=64)
    assert abs(deviation(thirds, len(places) / 64)) < 4


def test_places_can_be_asked_for_in_any_portion() -> None:
    for count in (1000, 70_001):
        whole = order_of(count, 9, 9)
        order = _native.Order(count, 9, 9)
        places = np.random.default_rng(0).integers(0, count, 3001)
        np.testing.assert_array_equal(order.at(places), whole[places])
        parts = [order.at(places[start : start + 7]) for start in range(0, 3001, 7)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[places])


def test_orders_never_change() -> None:
    for (count, seed, epoch), expected in ORDER_GOLDEN.items():
        order = _native.Order(count, seed, epoch)
        places = np.array([0, 1, 2, count // 2, count - 1])
        assert order.at(places).tolist() == expected, (count, seed, epoch)


def test_wrong_arguments_of_orders() -> None:
    for count in (-1, 2**62 + 1):
        with pytest.raises(ValueError, match=r"expected 0 to 2\^62"):
            _native.Order(count, 0, 0)
    assert _native.Order(0, 0, 0).at(np.empty(0, np.int64)).tolist() == []
    for count in (10, 100_000):
        order = _native.Order(count, 0, 0)
        for place in (-1, count, 2**63 - 1):
            with pytest.raises(ValueError, match=f"lies outside an order of {count}"):
                order.at(np.array([0, place]))
    with pytest.raises(ValueError, match="lies outside an order of 0"):
        _native.Order(0, 0, 0).at(np.array([0]))


@pytest.mark.parametrize("by", ["seed", "epoch"])
def test_all_orders_of_four_are_equally_likely(by: str) -> None:
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    draws = 24_000
    for number in range(draws):
        seed, epoch = (number, 0) if by == "seed" else (1, number)
        counts[tuple(order_of(4, seed, epoch).tolist())] += 1
    assert abs(deviation(np.array(list(counts.values())), draws / 24)) < 4


@pytest.mark.parametrize("count", [65_536, 100_000, 131_072, 1_000_000])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_large_orders_show_no_pattern(count: int, seed: int) -> None:
    order = order_of(count, seed, 3)
    places = np.arange(count)
    # |place - sample| of a random order: mean (n² - 1) / 3n, variance near n² / 18.
    moved = np.abs(order - places)
    mean = (count**2 - 1) / (3 * count)
    assert abs(moved.mean() - mean) < 4.5 * math.sqrt(count**2 / 18 / count)
    assert abs(moved.std() / (count / math.sqrt(18)) - 1) < 0.02
    # Differences of neighbours: as likely up as down, and of the triangular distribution.
    steps = np.diff(order)
    assert abs((steps > 0).mean() - 0.5) < 4.5 * math.sqrt(1 / 12 / count)
    sizes = 1 - (1 - np.abs(steps) / count) ** 2  # uniform in [0, 1] if triangular
    assert abs(deviation(np.histogram(sizes, 64, (0, 1))[0], (count - 1) / 64)) < 5
    # Where pairs of neighbours fall.
    cells = order[:-1] * 32 // count * 32 + order[1:] * 32 // count
    assert abs(deviation(np.bincount(cells, minlength=1024), (count - 1) / 1024)) < 4.5
    assert abs(np.corrcoef(order, places)[0, 1]) < 4.5 / math.sqrt(count)


@pytest.mark.parametrize("count", [65_536, 100_000])
def test_fixed_points_are_poisson(count: int) -> None:
    draws = 300
    places = np.arange(count)
    counts = np.bincount(
        [int((order_of(count, 7, epoch) == places).sum()) for epoch in range(draws)], minlength=4
    )
    observed = np.append(counts[:3], counts[3:].sum())
    shares = np.array([1, 1, 0.5]) / math.e
    expected = draws * np.append(shares, 1 - shares.sum())
    assert ((observed - expected) ** 2 / expected).sum() < 16.3  # 3 degrees of freedom: 1 in 1000


@pytest.mark.parametrize("count", [1000, 65_536, 100_000])
def test_epochs_and_seeds_are_unrelated(count: int) -> None:
    orders = [order_of(count, seed, epoch) for seed in range(4) for epoch in range(4)]
    for one, other in itertools.combinations(orders, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / math.sqrt(count)
        assert int((one == other).sum()) < 10


@pytest.mark.parametrize("count", [65_537, 100_000, 131_072])
def test_a_place_may_get_any_sample(count: int) -> None:
    """Over many seeds, at a few places of orders that the network makes."""
    places = np.array([0, 1, count // 2, count - 1])
    draws = 8000
    samples = np.stack([_native.Order(count, seed, 0).at(places) for seed in range(draws)])
    for column in samples.T:
        assert abs(deviation(np.bincount(column * 64 // count, minlength=64), draws / 64)) < 4.5
        assert abs(deviation(np.bincount(column % 61, minlength=61), draws / 61)) < 4.5
    assert abs(np.corrcoef(samples.T)[0, 1]) < 4.5 / math.sqrt(draws)
