"""Packed datasets: the on-disk format, and how it is read and checked."""
