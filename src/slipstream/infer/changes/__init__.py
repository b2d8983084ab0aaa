"""The changes that are known, one file per family."""
