"""What a chain of crops, one resize and flips takes of a picture, as plain numbers."""

from typing import NamedTuple

MIRROR, UPSIDE_DOWN = 1, 2


class Window(NamedTuple):
    """A box of the source, resized to `full`; of that the part of `size` at (`left`, `top`), then
    flipped. `full` is None where nothing was resized yet.

    >>> Window.whole(100, 80).cropped(10, 0, 60, 80).resized(25, 40, 2).cropped(5, 5, 25, 25)
    Window(x=10, y=0, width=50, height=80, full=(25, 40), left=5, top=5, size=(20, 20), flips=0, \
filter=2)
    """

    x: int
    y: int
    width: int
    height: int
    full: tuple[int, int] | None
    left: int
    top: int
    size: tuple[int, int]
    flips: int
    filter: int

    @staticmethod
    def whole(width: int, height: int) -> "Window":
        """All of a picture."""
        return Window(0, 0, width, height, None, 0, 0, (width, height), 0, 0)

    def cropped(self, left: int, top: int, right: int, bottom: int) -> "Window | None":
        """None for a box that is empty or reaches over the edge."""
        width, height = self.size
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            return None
        size = right - left, bottom - top
        if self.flips & MIRROR:
            left = width - right
        if self.flips & UPSIDE_DOWN:
            top = height - bottom
        x, y, width, height, full, in_left, in_top, _, flips, filter = self
        if full is None:
            x, y, (width, height) = x + left, y + top, size
        else:
            in_left, in_top = in_left + left, in_top + top
        return Window(x, y, width, height, full, in_left, in_top, size, flips, filter)

    def resized(self, width: int, height: int, filter: int) -> "Window | None":
        """None where the engine cannot: a second resize, or one of a flipped picture, which is not
        bit for bit the flip of a resized one.
        """
        if (width, height) == self.size:
            return self
        if self.full is not None or self.flips or width < 1 or height < 1:
            return None
        size = width, height
        return Window(self.x, self.y, self.width, self.height, size, 0, 0, size, 0, filter)

    def flipped(self, flips: int) -> "Window":
        """`flips` is MIRROR, UPSIDE_DOWN or both."""
        return self._replace(flips=self.flips ^ flips)
