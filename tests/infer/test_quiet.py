"""Quiet blocks: what they hold back, and that threads do not mute each other."""

import logging
import sys
import threading
import warnings
from typing import Any

import torch

from slipstream.infer.quiet import quietly
from slipstream.onednn import without_onednn


def test_what_a_block_prints_is_not_seen(capsys: Any) -> None:
    before = sys.stdout, sys.stderr, logging.getLogger("torch.fx").level
    with quietly():
        print("one")
        with quietly():
            print("two", file=sys.stderr)
            warnings.warn("three", stacklevel=1)
        print("four")
    print("five")
    assert capsys.readouterr() == ("five\n", "")
    assert (sys.stdout, sys.stderr, logging.getLogger("torch.fx").level) == before


def test_blocks_of_two_threads_may_overlap(capsys: Any) -> None:
    before = sys.stdout, sys.stderr, logging.getLogger("torch.fx").level
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with quietly():
            entered.set()
            left.wait(10)
            print("not seen")

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    print("seen: no block of this thread")
    with quietly():
        print("not seen")
        left.set()
        thread.join(10)
        print("not seen")
    assert capsys.readouterr().out == "seen: no block of this thread\n"
    assert (sys.stdout, sys.stderr, logging.getLogger("torch.fx").level) == before


def test_onednn_is_back_when_the_last_thread_is_done() -> None:
    before = torch._C._get_mkldnn_enabled()
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with without_onednn():
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    with without_onednn():
        left.set()
        thread.join(10)
        assert not torch._C._get_mkldnn_enabled()
    assert torch._C._get_mkldnn_enabled() == before
