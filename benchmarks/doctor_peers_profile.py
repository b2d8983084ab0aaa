"""Runs a script under torch.profiler, as its documentation shows: a few steps, with stacks.

python doctor_peers_profile.py ROWS.json SCRIPT    With `-` for the file, all of the script is
recorded and nothing is written: that is for the script's own clock.
"""

import json
import os
import runpy
import sys
from pathlib import Path

from torch._C._profiler import _ExperimentalConfig
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

_FRAMES = 5
_ROWS = 200
# Later than the start; they hold the end of an epoch of 8 or 10 steps. More take minutes to sum up.
_STEPS = {"wait": 4, "warmup": 1, "active": 6}


def main() -> None:
    """Record, and write the rows of the table."""
    rows, script = sys.argv[1:]
    sys.argv = [script]
    sys.path.insert(0, str(Path(script).parent))
    profiler = profile(
        activities=[ProfilerActivity.CPU],
        with_stack=True,
        schedule=None if rows == "-" else schedule(**_STEPS, repeat=1),
        experimental_config=_ExperimentalConfig(verbose=True),  # without it the stacks are empty
    )
    if rows != "-":
        register_optimizer_step_post_hook(lambda *_: profiler.step())
    with profiler:
        runpy.run_path(script, run_name="__main__")
        if rows == "-":
            sys.stdout.flush()
            os._exit(0)
    table = profiler.key_averages(group_by_stack_n=_FRAMES)
    table.sort(key=lambda row: -row.self_cpu_time_total)
    Path(rows).write_text(
        json.dumps([[row.key, *row.stack] for row in table[:_ROWS]]), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
