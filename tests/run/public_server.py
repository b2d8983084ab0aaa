"""Runs scripts with fixes, each in a fork of a process that has loaded torch once: a start of
Python for each would take longer than the scripts do.

It reads a line of JSON for each run: script, arguments, folder, fixes. It answers with one: the
exit code and what made fixes give up.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401, with the first optimizer it would come anyway

from slipstream.doctor.capture import Capture
from slipstream.launch import Target, run_target
from slipstream.run.apply import apply_all
from slipstream.run.fix import Situation


def main() -> None:
    for line in sys.stdin:
        spec = json.loads(line)
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            try:
                answer = _run(spec)
            except BaseException:
                answer = {"exit_code": 255, "failures": {"": traceback.format_exc()}}
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            said = file.read()
        os.waitpid(process, 0)
        print(said.decode() or '{"exit_code": 254, "failures": {"": "it died"}}', flush=True)


def _run(spec: dict[str, Any]) -> dict[str, Any]:
    folder = Path(spec["folder"])
    os.chdir(folder)
    for descriptor, name in ((0, os.devnull), (1, f"{folder}.out"), (2, f"{folder}.err")):
        opened = os.open(
            name, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        os.dup2(opened, descriptor)
    situation = Situation({"findings": []}, Capture(spec["script"], {}, ""))
    undo = apply_all(spec["fixes"], situation)
    ran = run_target(Target(spec["script"], tuple(spec["arguments"])))
    for take_away in reversed(undo.values()):
        take_away()
    sys.stdout.flush()
    sys.stderr.flush()
    return {"exit_code": ran.exit_code, "failures": situation.failures}


if __name__ == "__main__":
    main()
