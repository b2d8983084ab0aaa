"""The kernel of `flat`, in Triton, and what it shares with the others.

It works its way along the memory of the result, whose values lie without gaps, so that stores are
as wide as can be. Bytes are read as widely where the source lies in the same order.
"""

import triton
import triton.language as tl

KEEP: tl.constexpr = tl.constexpr(0)  # bytes stay bytes
AFFINE: tl.constexpr = tl.constexpr(1)
LOOK_UP: tl.constexpr = tl.constexpr(2)


@triton.jit
def row_of(at, width, reciprocal, QUICK: tl.constexpr):
    """at // width. QUICK: by ceil(2^32 / width), exact as long as at * width is below 2^32."""
    if QUICK:
        return tl.umulhi(at.to(tl.uint32), reciprocal.to(tl.uint32)).to(tl.int32)
    else:
        return at // width


@triton.jit
def mirrored(flips, width, height, sy, sx):
    """Where the first pixel of a flipped picture is, and the steps from row to row, pixel to pixel.

    Bit 0 of `flips` is left-right, bit 1 top-bottom.
    """
    is_across = (flips & 1) != 0
    is_down = (flips & 2) != 0
    start = tl.where(is_across, (width - 1) * sx, 0) + tl.where(is_down, (height - 1) * sy, 0)
    return start, tl.where(is_down, -sy, sy), tl.where(is_across, -sx, sx)


@triton.jit
def value_of(level, table, scale, shift, type: tl.constexpr, HOW: tl.constexpr):
    """What a byte, as a float, becomes."""
    if HOW == KEEP:
        return level.to(tl.int32).to(type)
    elif HOW == AFFINE:
        return tl.fma(level, scale, shift).to(type)
    else:
        return tl.load(table + level.to(tl.int32))


@triton.jit
def _of_channel(channel, red, green, blue):
    return tl.where(channel == 0, red, tl.where(channel == 1, green, blue))


@triton.jit
def _turned(first, k, red, green, blue):
    # Numbers of three channels, from channel `first` on, for the k-th value of a run. In a thread
    # k is known when this is compiled: three choices a run, not one a value.
    first_one = _of_channel(first, red, green, blue)
    second_one = _of_channel(first, green, blue, red)
    third_one = _of_channel(first, blue, red, green)
    return tl.where(k % 3 == 0, first_one, tl.where(k % 3 == 1, second_one, third_one))


@triton.jit
def _read(
    origin, run, k, length, plane, width, reciprocal, sc, down, along,
    INTERLEAVED: tl.constexpr, SAME: tl.constexpr, ROWS: tl.constexpr, FIT: tl.constexpr,
    QUICK: tl.constexpr,
):  # fmt: skip
    at = run + k
    if SAME:
        place = at
    else:
        if INTERLEAVED:
            pixel = at // 3
            place = (at - 3 * pixel) * sc + pixel * along
        else:
            pixel = at
            place = plane * sc + pixel * along
        if ROWS:
            if FIT:
                pixel = run // 3 if INTERLEAVED else run
            place += row_of(pixel, width, reciprocal, QUICK) * (down - width * along)
    return tl.load(origin + place, mask=at < length, other=0)


@triton.jit
def _finished(
    byte, run, k, plane, table, scale_red, scale_green, scale_blue, shift_red, shift_green,
    shift_blue, type: tl.constexpr, INTERLEAVED: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    if HOW == KEEP:
        return byte
    else:
        if INTERLEAVED:
            scale = _turned(run % 3, k, scale_red, scale_green, scale_blue)
            shift = _turned(run % 3, k, shift_red, shift_green, shift_blue)
            row = _turned(run % 3, k, 0, 256, 512)
        else:
            scale = _of_channel(plane, scale_red, scale_green, scale_blue)
            shift = _of_channel(plane, shift_red, shift_green, shift_blue)
            row = plane * 256
        return value_of(byte.to(tl.float32), table + row, scale, shift, type, HOW)


@triton.jit
def _walk(
    origin, target, table, begin, length, plane, width, reciprocal, sc, down, along,
    scale_red, scale_green, scale_blue, shift_red, shift_green, shift_blue,
    INTERLEAVED: tl.constexpr, SAME: tl.constexpr, ROWS: tl.constexpr, FIT: tl.constexpr,
    QUICK: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    type: tl.constexpr = target.dtype.element_ty
    first = RUN * tl.arange(0, BLOCK // RUN)[:, None]
    k = tl.arange(0, RUN)[None, :]
    for part in tl.static_range(ROUNDS):
        start = begin + 3 * part * BLOCK
        # All three are under way before the first is needed.
        a = _read(
            origin, start + first, k, length, plane, width, reciprocal, sc, down, along,
            INTERLEAVED, SAME, ROWS, FIT, QUICK,
        )  # fmt: skip
        b = _read(
            origin, start + BLOCK + first, k, length, plane, width, reciprocal, sc, down, along,
            INTERLEAVED, SAME, ROWS, FIT, QUICK,
        )  # fmt: skip
        c = _read(
            origin, start + 2 * BLOCK + first, k, length, plane, width, reciprocal, sc, down, along,
            INTERLEAVED, SAME, ROWS, FIT, QUICK,
        )  # fmt: skip
        a = _finished(
            a, first, k, plane, table, scale_red, scale_green, scale_blue,
            shift_red, shift_green, shift_blue, type, INTERLEAVED, HOW,
        )  # fmt: skip
        b = _finished(
            b, first + BLOCK, k, plane, table, scale_red, scale_green, scale_blue,
            shift_red, shift_green, shift_blue, type, INTERLEAVED, HOW,
        )  # fmt: skip
        c = _finished(
            c, first + 2 * BLOCK, k, plane, table, scale_red, scale_green, scale_blue,
            shift_red, shift_green, shift_blue, type, INTERLEAVED, HOW,
        )  # fmt: skip
        at = start + first + k
        tl.store(target + at, a, mask=at < length)
        tl.store(target + at + BLOCK, b, mask=at + BLOCK < length)
        tl.store(target + at + 2 * BLOCK, c, mask=at + 2 * BLOCK < length)


@triton.jit
def finish(
    pixels, out, table, flips, length, width, height, reciprocal, sn, sc, sy, sx,
    scale_red, scale_green, scale_blue, shift_red, shift_green, shift_blue,
    INTERLEAVED: tl.constexpr, SAME: tl.constexpr, FLIPS: tl.constexpr, ROWS: tl.constexpr,
    FIT: tl.constexpr, QUICK: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr,
    RUN: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Bytes, flipped where bits in `flips` say so, as what each becomes.

    `length` values are those of a picture, of a plane unless INTERLEAVED, or of the whole batch
    where that makes no difference. SAME: the source lies in memory as the result does, but for
    flips. ROWS: its rows do not follow each other without gaps. A thread does RUN values that
    follow each other; FIT: they are always of one row.
    """
    chunk: tl.constexpr = 3 * ROUNDS * BLOCK  # three, so that all begin with the same channel
    chunks = tl.cdiv(length, chunk)
    unit = tl.program_id(0) // chunks
    begin = (tl.program_id(0) % chunks) * chunk
    if INTERLEAVED:
        picture = unit
        plane = 0
    else:
        picture = unit // 3
        plane = unit % 3
    target = out + unit.to(tl.int64) * length
    flipped = 0
    if FLIPS:
        flipped = tl.load(flips + picture).to(tl.int32)
    if SAME:
        if flipped == 0:
            _walk(
                pixels + unit.to(tl.int64) * length, target, table, begin, length, plane, width,
                reciprocal, sc, sy, sx, scale_red, scale_green, scale_blue, shift_red, shift_green,
                shift_blue, INTERLEAVED, True, ROWS, FIT, QUICK, HOW, BLOCK, RUN, ROUNDS,
            )  # fmt: skip
    elsewhere = flipped if SAME else 1
    if elsewhere != 0:
        start, down, along = mirrored(flipped, width, height, sy, sx)
        _walk(
            pixels + picture.to(tl.int64) * sn + start, target, table, begin, length, plane,
            width, reciprocal, sc, down, along, scale_red, scale_green, scale_blue, shift_red,
            shift_green, shift_blue, INTERLEAVED, False, ROWS or FLIPS, FIT, QUICK, HOW, BLOCK,
            RUN, ROUNDS,
        )  # fmt: skip
