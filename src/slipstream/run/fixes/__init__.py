"""The fixes, a family per file."""
