"""The kernels of `fused`, in Triton.

Codes: 0 nothing, 1 brightness, 2 contrast, 3 saturation, 4 hue, 5 grey, 6 a box of one colour.
Pictures are bytes, with steps sn, sc, sy, sx from one picture, channel, row, pixel to the next; a
program does BLOCK pixels of one picture.
"""

import triton
import triton.language as tl


@triton.jit
def _settle(value):
    return tl.floor(tl.minimum(tl.maximum(value, 0.0), 255.0))


@triton.jit
def _grey(red, green, blue):
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
    divisor = tl.where(spread == 0.0, 1.0, spread)
    second = tl.where(value == g, tl.div_rn(b - r, divisor) + 2.0, tl.div_rn(r - g, divisor) + 4.0)
    sixths = tl.where(value == r, tl.div_rn(g - b, divisor), second) + shift * 6.0
    return (
        _turned(value, spread, sixths + 5.0),
        _turned(value, spread, sixths + 3.0),
        _turned(value, spread, sixths + 1.0),
    )


@triton.jit
def _change(code, amount, mean, red, green, blue, inside, fill_red, fill_green, fill_blue):
    if code == 1:
        red = _settle(red * amount)
        green = _settle(green * amount)
        blue = _settle(blue * amount)
    elif code == 2:
        rest = mean * (1.0 - amount)
        red = _settle(red * amount + rest)
        green = _settle(green * amount + rest)
        blue = _settle(blue * amount + rest)
    elif code == 3:
        rest = tl.floor(_grey(red, green, blue)) * (1.0 - amount)
        red = _settle(red * amount + rest)
        green = _settle(green * amount + rest)
        blue = _settle(blue * amount + rest)
    elif code == 4:
        red, green, blue = _turn_hue(red, green, blue, amount)
    elif code == 5:
        red = _settle(_grey(red, green, blue))
        green = red
        blue = red
    elif code == 6:
        red = tl.where(inside, tl.floor(fill_red), red)
        green = tl.where(inside, tl.floor(fill_green), green)
        blue = tl.where(inside, tl.floor(fill_blue), blue)
    return red, green, blue


@triton.jit
def _load(pixels, boxes, width, area, sn, sc, sy, sx, BLOCK: tl.constexpr):
    picture = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = at < area
    y = at // width
    x = at - y * width
    left = tl.load(boxes + 4 * picture)
    top = tl.load(boxes + 4 * picture + 1)
    inside = (x >= left) & (x < left + tl.load(boxes + 4 * picture + 2))
    inside = inside & (y >= top) & (y < top + tl.load(boxes + 4 * picture + 3))
    source = pixels + picture.to(tl.int64) * sn + y * sy + x * sx
    red = tl.load(source, mask=here, other=0).to(tl.float32)
    green = tl.load(source + sc, mask=here, other=0).to(tl.float32)
    blue = tl.load(source + 2 * sc, mask=here, other=0).to(tl.float32)
    return picture, x, y, here, inside, red, green, blue


@triton.jit
def sum_grey(
    pixels, sums, codes, amounts, boxes, width, area, sn, sc, sy, sx,
    fill_red, fill_green, fill_blue, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The grey of all pixels as they are when contrast has its turn, added up."""
    picture, _x, _y, here, inside, red, green, blue = _load(
        pixels, boxes, width, area, sn, sc, sy, sx, BLOCK
    )
    before = True
    for k in tl.static_range(STEPS):
        code = tl.load(codes + picture * STEPS + k)
        before = before & (code != 2)
        amount = tl.load(amounts + picture * STEPS + k)
        if before:
            red, green, blue = _change(
                code, amount, 0.0, red, green, blue, inside, fill_red, fill_green, fill_blue
            )
    grey = tl.where(here, tl.floor(_grey(red, green, blue)), 0.0).to(tl.int32)
    tl.atomic_add(sums + picture, tl.sum(grey, 0).to(tl.int64))


@triton.jit
def run(
    pixels, out, table, codes, amounts, boxes, means, width, area, sn, sc, sy, sx,
    on, oc, oy, ox, fill_red, fill_green, fill_blue,
    STEPS: tl.constexpr, BLOCK: tl.constexpr, ERASES_AFTER: tl.constexpr,
):  # fmt: skip
    """All changes, then what each byte becomes."""
    picture, x, y, here, inside, red, green, blue = _load(
        pixels, boxes, width, area, sn, sc, sy, sx, BLOCK
    )
    mean = tl.load(means + picture)
    for k in tl.static_range(STEPS):
        code = tl.load(codes + picture * STEPS + k)
        amount = tl.load(amounts + picture * STEPS + k)
        red, green, blue = _change(
            code, amount, mean, red, green, blue, inside, fill_red, fill_green, fill_blue
        )
    # Looked up: exact in every type, and no division.
    first = tl.load(table + red.to(tl.int32))
    second = tl.load(table + 256 + green.to(tl.int32))
    third = tl.load(table + 512 + blue.to(tl.int32))
    if ERASES_AFTER:
        first = tl.where(inside, fill_red, first.to(tl.float32)).to(first.dtype)
        second = tl.where(inside, fill_green, second.to(tl.float32)).to(second.dtype)
        third = tl.where(inside, fill_blue, third.to(tl.float32)).to(third.dtype)
    target = out + picture.to(tl.int64) * on + y * oy + x * ox
    tl.store(target, first, mask=here)
    tl.store(target + oc, second, mask=here)
    tl.store(target + 2 * oc, third, mask=here)
