"""The kernels of `auto_fused`, in Triton: one of fourteen changes for each picture.

Codes are numbers in `auto_augment.NAMES`. A plan is a row of eight words, int64: the code, an
amount (the bits of a float32), and six of a matrix in units of 2^-32. Pictures are bytes, with
steps sn, sc, sy, sx from one picture, channel, row, pixel to the next; PLANAR: they lie without
gaps, each channel by itself, as results always do.

Most changes give every value of a channel another one, whatever its neighbours are: `make_tables`
writes these down, 256 bytes a channel, and `change` looks them up.
"""

import triton
import triton.language as tl

from slipstream.augment.flat_kernel import row_of
from slipstream.augment.kernels import grey_of, settle

ROTATE: tl.constexpr = tl.constexpr(5)  # 1 to 5 are changes of places
BRIGHTNESS: tl.constexpr = tl.constexpr(6)
COLOR: tl.constexpr = tl.constexpr(7)
CONTRAST: tl.constexpr = tl.constexpr(8)
SHARPNESS: tl.constexpr = tl.constexpr(9)
POSTERIZE: tl.constexpr = tl.constexpr(10)
SOLARIZE: tl.constexpr = tl.constexpr(11)
AUTO_CONTRAST: tl.constexpr = tl.constexpr(12)
WORDS: tl.constexpr = tl.constexpr(8)


@triton.jit
def _plan(plans, picture):
    plan = plans + picture * WORDS
    amount = tl.load(plan + 1).to(tl.int32).to(tl.float32, bitcast=True)
    return plan, tl.load(plan).to(tl.int32), amount


@triton.jit
def _place(at, width, reciprocal, sy, sx, PLANAR: tl.constexpr, QUICK: tl.constexpr):
    if PLANAR:
        return at
    else:
        y = row_of(at, width, reciprocal, QUICK)
        return y * sy + (at - y * width) * sx


@triton.jit
def _mean_grey(
    source, width, height, reciprocal, sc, sy, sx,
    PLANAR: tl.constexpr, QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    area = width * height
    sums = tl.zeros([BLOCK], tl.int32)
    for begin in tl.range(0, area, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        place = source + _place(at, width, reciprocal, sy, sx, PLANAR, QUICK)
        red = tl.load(place, mask=at < area, other=0).to(tl.float32)
        green = tl.load(place + sc, mask=at < area, other=0).to(tl.float32)
        blue = tl.load(place + 2 * sc, mask=at < area, other=0).to(tl.float32)
        sums += tl.floor(grey_of(red, green, blue)).to(tl.int32)
    total = tl.sum(sums.to(tl.int64), 0).to(tl.float64)
    return (total / area.to(tl.float64)).to(tl.float32)


@triton.jit
def _counts(
    plane, width, height, reciprocal, sy, sx,
    PLANAR: tl.constexpr, QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    area = width * height
    counts = tl.zeros([256], tl.int32)
    for begin in tl.range(0, area, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        place = plane + _place(at, width, reciprocal, sy, sx, PLANAR, QUICK)
        counts += tl.histogram(tl.load(place, mask=at < area, other=0).to(tl.int32), 256)
    # What lies behind the end of the last block was counted as zeros.
    behind = tl.cdiv(area, BLOCK) * BLOCK - area
    return counts - tl.where(tl.arange(0, 256) == 0, behind, 0)


@triton.jit
def _stretched(level, counts):
    low = tl.min(tl.where(counts > 0, level, 255), 0).to(tl.float32)
    high = tl.max(tl.where(counts > 0, level, 0), 0).to(tl.float32)
    step = tl.where(high == low, 1.0, (high - low) * (1.0 / 255))
    return settle(tl.div_rn(level.to(tl.float32) - tl.where(high == low, 0.0, low), step))


@triton.jit
def _equalized(level, counts, area):
    highest = tl.max(tl.where(counts > 0, level, 0), 0)
    last = tl.sum(tl.where(level == highest, counts, 0), 0)
    step = (area - last) // 255
    below = tl.cumsum(counts, 0) - counts
    spread = tl.minimum((below + step // 2) // tl.maximum(step, 1), 255)
    return tl.where(step == 0, level, spread)


@triton.jit
def make_tables(
    pixels, tables, plans, width, height, reciprocal, sn, sc, sy, sx,
    PLANAR: tl.constexpr, QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What each value of a channel becomes, uint8[N, 3, 256], for changes that are so. A program
    does one channel, and looks at all of it where it has to.
    """
    picture = tl.program_id(0) // 3
    channel = tl.program_id(0) % 3
    _plan_of, code, amount = _plan(plans, picture)
    if (code >= BRIGHTNESS) & (code != COLOR) & (code != SHARPNESS):
        level = tl.arange(0, 256)
        value = level.to(tl.float32)
        source = pixels + picture.to(tl.int64) * sn
        if code == BRIGHTNESS:
            changed = settle(value * amount).to(tl.int32)
        elif code == CONTRAST:
            mean = _mean_grey(source, width, height, reciprocal, sc, sy, sx, PLANAR, QUICK, BLOCK)
            changed = settle(value * amount + mean * (1.0 - amount)).to(tl.int32)
        elif code == POSTERIZE:
            lost = 8 - amount.to(tl.int32)
            changed = (level >> lost) << lost
        elif code == SOLARIZE:
            changed = tl.where(value >= amount, 255 - level, level)
        else:
            counts = _counts(
                source + channel * sc, width, height, reciprocal, sy, sx, PLANAR, QUICK, BLOCK
            )
            if code == AUTO_CONTRAST:
                changed = _stretched(level, counts).to(tl.int32)
            else:
                changed = _equalized(level, counts, width * height)
        tl.store(tables + tl.program_id(0) * 256 + level, changed.to(tl.uint8))


@triton.jit
def _move(source, target, plan, at, x, y, width, height, sc, sy, sx):
    across = x.to(tl.int64)
    down = y.to(tl.int64)
    half: tl.constexpr = 1 << 31
    column = tl.load(plan + 2) * across + tl.load(plan + 3) * down + (tl.load(plan + 4) + half)
    row = tl.load(plan + 5) * across + tl.load(plan + 6) * down + (tl.load(plan + 7) + half)
    column = (column >> 32).to(tl.int32)
    row = (row >> 32).to(tl.int32)
    here = at < width * height
    inside = here & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = source + row * sy + column * sx
    for channel in tl.static_range(3):
        value = tl.load(place + channel * sc, mask=inside, other=0)
        tl.store(target + channel * width * height + at, value, mask=here)


@triton.jit
def _sharpen(source, target, amount, at, x, y, width, height, sc, sy, sx):
    here = at < width * height
    inside = (x > 0) & (x < width - 1) & (y > 0) & (y < height - 1)
    for channel in tl.static_range(3):
        place = source + channel * sc + y * sy + x * sx
        level = tl.load(place, mask=here, other=0).to(tl.int32)
        total = 4 * level
        for down in tl.static_range(-1, 2):
            for along in tl.static_range(-1, 2):
                near = place + down * sy + along * sx
                total += tl.load(near, mask=inside, other=0).to(tl.int32)
        # A thirteenth, rounded: it is never half-way.
        blurred = ((2 * total + 13) // 26).to(tl.float32)
        value = level.to(tl.float32)
        value = tl.where(inside, settle(value + (blurred - value) * (1.0 - amount)), value)
        store = target + channel * width * height + at
        tl.store(store, value.to(tl.int32).to(tl.uint8), mask=here)


@triton.jit
def _saturate(place, target, amount, at, area, sc):
    here = at < area
    red = tl.load(place, mask=here, other=0).to(tl.float32)
    green = tl.load(place + sc, mask=here, other=0).to(tl.float32)
    blue = tl.load(place + 2 * sc, mask=here, other=0).to(tl.float32)
    rest = tl.floor(grey_of(red, green, blue)) * (1.0 - amount)
    red = settle(red * amount + rest)
    green = settle(green * amount + rest)
    blue = settle(blue * amount + rest)
    tl.store(target + at, red.to(tl.int32).to(tl.uint8), mask=here)
    tl.store(target + area + at, green.to(tl.int32).to(tl.uint8), mask=here)
    tl.store(target + 2 * area + at, blue.to(tl.int32).to(tl.uint8), mask=here)


@triton.jit
def _look_up(place, target, table, code, at, area, sc):
    here = at < area
    for channel in tl.static_range(3):
        level = tl.load(place + channel * sc, mask=here, other=0)
        if code != 0:
            level = tl.load(table + channel * 256 + level.to(tl.int32))
        tl.store(target + channel * area + at, level, mask=here)


@triton.jit
def change(
    pixels, out, tables, plans, width, height, reciprocal, sn, sc, sy, sx,
    PLANAR: tl.constexpr, QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each picture changed, BLOCK pixels of one in a program; `out` is planar."""
    area = width * height
    blocks = tl.cdiv(area, BLOCK)
    picture = tl.program_id(0) // blocks
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    plan, code, amount = _plan(plans, picture)
    source = pixels + picture.to(tl.int64) * sn
    target = out + picture.to(tl.int64) * 3 * area
    if ((code >= 1) & (code <= ROTATE)) | (code == SHARPNESS):
        y = row_of(at, width, reciprocal, QUICK)
        x = at - y * width
        if code == SHARPNESS:
            _sharpen(source, target, amount, at, x, y, width, height, sc, sy, sx)
        else:
            _move(source, target, plan, at, x, y, width, height, sc, sy, sx)
    else:
        place = source + _place(at, width, reciprocal, sy, sx, PLANAR, QUICK)
        if code == COLOR:
            _saturate(place, target, amount, at, area, sc)
        else:
            _look_up(place, target, tables + picture * 768, code, at, area, sc)
