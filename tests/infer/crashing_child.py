"""A process that ends as a library with a fault in it does."""

import ctypes

ctypes.string_at(0)
