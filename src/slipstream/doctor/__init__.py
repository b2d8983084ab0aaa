"""Runs an unmodified training script for some steps and says what is slow in it, and what it costs.

`record` watches the script and leaves a `Capture`; `attribute` gives every millisecond of a step to
a part; `rules` find causes in both; `report` orders them, for people and for other programs. All
but `record` are pure functions of plain values.
"""
