"""Keeps what a trial writes out of the user's files.

What a trial creates, changes and removes lies in a folder of its own, and is what it reads back.
Covers Python's own functions and torch.save, in the trial and in the processes that multiprocessing
starts for it: libraries that write from C, and other programs, are not seen.
"""
