"""Pillow pictures that are decoded late, by the engine, and only where pixels are needed."""
