"""The kernels of `fused` for steps that look at whole pixels, in Triton.

Codes: 0 nothing, 1 brightness, 2 contrast, 3 saturation, 4 hue, 5 grey, 6 a box of one colour.
Pictures are bytes, with steps sn, sc, sy, sx from one picture, channel, row, pixel to the next; a
program does BLOCK pixels of one picture. What a picture goes through is a row of `plans`, int32:
see `fused`.
"""

import triton
import triton.language as tl

from slipstream.augment.flat_kernel import mirrored, row_of, value_of


@triton.jit
def settle(value):
    """As `levels.settle`, still a float."""
    return tl.floor(tl.minimum(tl.maximum(value, 0.0), 255.0))


@triton.jit
def grey_of(red, green, blue):
    """As `color` has it."""
    return (red * 0.2989 + green * 0.587) + blue * 0.114


@triton.jit
def _turned(value, spread, away):
    # The remainder of a division by 6, of numbers from -6 to 18.
    away = tl.where(away < 0.0, away + 6.0, away)
    away = tl.where(away >= 6.0, away - 6.0, away)
    away = tl.where(away >= 6.0, away - 6.0, away)
    part = tl.minimum(tl.maximum(tl.minimum(away, 4.0 - away), 0.0), 1.0)
    level = tl.minimum(tl.maximum(value - spread * part, 0.0), 1.0)
    return tl.floor(level * 255.999)


@triton.jit
def _turn_hue(red, green, blue, shift):
    r = red * (1.0 / 255)
    g = green * (1.0 / 255)
    b = blue * (1.0 / 255)
    value = tl.maximum(tl.maximum(r, g), b)
    spread = value - tl.minimum(tl.minimum(r, g), b)
    is_red = value == r
    is_green = value == g
    # Chosen before the division, of which there is one then. Adding 0 changes nothing.
    above = tl.where(is_red, g - b, tl.where(is_green, b - r, r - g))
    corner = tl.where(is_red, 0.0, tl.where(is_green, 2.0, 4.0))
    sixths = tl.div_rn(above, tl.where(spread == 0.0, 1.0, spread)) + corner + shift * 6.0
    return (
        _turned(value, spread, sixths + 5.0),
        _turned(value, spread, sixths + 3.0),
        _turned(value, spread, sixths + 1.0),
    )


@triton.jit
def _change(
    code, amount, mean, red, green, blue, inside, fill_red, fill_green, fill_blue,
    HUE: tl.constexpr,
):  # fmt: skip
    if code == 1:
        red = settle(red * amount)
        green = settle(green * amount)
        blue = settle(blue * amount)
    elif code == 2:
        rest = mean * (1.0 - amount)
        red = settle(red * amount + rest)
        green = settle(green * amount + rest)
        blue = settle(blue * amount + rest)
    elif code == 3:
        rest = tl.floor(grey_of(red, green, blue)) * (1.0 - amount)
        red = settle(red * amount + rest)
        green = settle(green * amount + rest)
        blue = settle(blue * amount + rest)
    elif code == 5:
        red = settle(grey_of(red, green, blue))
        green = red
        blue = red
    elif code == 6:
        red = tl.where(inside, tl.floor(fill_red), red)
        green = tl.where(inside, tl.floor(fill_green), green)
        blue = tl.where(inside, tl.floor(fill_blue), blue)
    if HUE:
        if code == 4:
            red, green, blue = _turn_hue(red, green, blue, amount)
    return red, green, blue


@triton.jit
def _load(
    pixels, plan, picture, block, width, height, reciprocal, sn, sc, sy, sx,
    QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = block * BLOCK + tl.arange(0, BLOCK)
    here = at < width * height
    y = row_of(at, width, reciprocal, QUICK)
    x = at - y * width
    left = tl.load(plan + 2)
    top = tl.load(plan + 3)
    inside = (x >= left) & (x < left + tl.load(plan + 4))
    inside = inside & (y >= top) & (y < top + tl.load(plan + 5))
    start, down, along = mirrored(tl.load(plan + 6), width, height, sy, sx)
    source = pixels + picture.to(tl.int64) * sn + start + (y * down + x * along)
    red = tl.load(source, mask=here, other=0).to(tl.float32)
    green = tl.load(source + sc, mask=here, other=0).to(tl.float32)
    blue = tl.load(source + 2 * sc, mask=here, other=0).to(tl.float32)
    return at, here, x, y, inside, red, green, blue


@triton.jit
def sum_grey(
    pixels, plans, sums, width, height, reciprocal, sn, sc, sy, sx,
    fill_red, fill_green, fill_blue,
    STEPS: tl.constexpr, HUE: tl.constexpr, QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The grey of all pixels as they are when contrast has its turn, added up."""
    blocks = tl.cdiv(width * height, BLOCK)
    picture = tl.program_id(0) // blocks
    plan = plans + picture * (8 + 2 * STEPS)
    _at, here, _x, _y, inside, red, green, blue = _load(
        pixels, plan, picture, tl.program_id(0) % blocks, width, height, reciprocal,
        sn, sc, sy, sx, QUICK, BLOCK,
    )  # fmt: skip
    before = True
    # Loops that stay loops: unrolled, they are too long for the cache of instructions.
    for k in tl.range(STEPS):
        code = tl.load(plan + 8 + k)
        amount = tl.load(plan + 8 + STEPS + k).to(tl.float32, bitcast=True)
        before = before & (code != 2)
        red, green, blue = _change(
            tl.where(before, code, 0), amount, 0.0, red, green, blue, inside,
            fill_red, fill_green, fill_blue, HUE,
        )  # fmt: skip
    grey = tl.where(here, tl.floor(grey_of(red, green, blue)), 0.0).to(tl.int32)
    tl.atomic_add(sums + picture * (4 + STEPS), tl.sum(grey, 0).to(tl.int64))


@triton.jit
def run(
    pixels, out, table, plans, sums, width, height, reciprocal, sn, sc, sy, sx, on, oc, oy, ox,
    fill_red, fill_green, fill_blue,
    scale_red, scale_green, scale_blue, shift_red, shift_green, shift_blue,
    STEPS: tl.constexpr, HUE: tl.constexpr, MEANS: tl.constexpr, HOW: tl.constexpr,
    ERASES_AFTER: tl.constexpr, INTERLEAVED: tl.constexpr, PLANAR: tl.constexpr,
    QUICK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All changes, then what each byte becomes."""
    area = width * height
    blocks = tl.cdiv(area, BLOCK)
    picture = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    plan = plans + picture * (8 + 2 * STEPS)
    at, here, x, y, inside, red, green, blue = _load(
        pixels, plan, picture, block, width, height, reciprocal, sn, sc, sy, sx, QUICK, BLOCK
    )
    mean = 0.0
    if MEANS:
        total = tl.load(sums + picture * (4 + STEPS)).to(tl.float64)
        mean = (total / area.to(tl.float64)).to(tl.float32)
    for k in tl.range(STEPS):
        code = tl.load(plan + 8 + k)
        amount = tl.load(plan + 8 + STEPS + k).to(tl.float32, bitcast=True)
        red, green, blue = _change(
            code, amount, mean, red, green, blue, inside, fill_red, fill_green, fill_blue, HUE
        )
    first = value_of(red, table, scale_red, shift_red, out.dtype.element_ty, HOW)
    second = value_of(green, table + 256, scale_green, shift_green, out.dtype.element_ty, HOW)
    third = value_of(blue, table + 512, scale_blue, shift_blue, out.dtype.element_ty, HOW)
    if ERASES_AFTER:
        first = tl.where(inside, fill_red, first.to(tl.float32)).to(first.dtype)
        second = tl.where(inside, fill_green, second.to(tl.float32)).to(second.dtype)
        third = tl.where(inside, fill_blue, third.to(tl.float32)).to(third.dtype)
    target = out + picture.to(tl.int64) * on
    if INTERLEAVED:
        # Turned round in shared memory: three stores that each leave gaps cost more.
        quads = tl.reshape(tl.join(tl.join(first, third), tl.join(second, second)), [4 * BLOCK])
        for part in tl.static_range(3):
            of_block = part * BLOCK + tl.arange(0, BLOCK)
            values = tl.gather(quads, of_block + of_block // 3, 0)
            of_picture = 3 * block * BLOCK + of_block
            tl.store(target + of_picture, values, mask=of_picture < 3 * area)
    else:
        target += at if PLANAR else y * oy + x * ox
        tl.store(target, first, mask=here)
        tl.store(target + oc, second, mask=here)
        tl.store(target + 2 * oc, third, mask=here)
