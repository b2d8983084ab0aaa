"""A process that misbehaves in the way that the name of its file asks for."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from slipstream.infer.elsewhere.child import end_with_parent
from slipstream.infer.elsewhere.lists import load_lists, save_lists

spec = Path(sys.argv[1])
place = spec.parent
values = json.loads(spec.read_text())
end_with_parent(values["parent"])
arrays = load_lists(place / "inputs.npz")
match Path(values["file"]).name:
    case "abort":
        os.abort()
    case "segfault":
        import ctypes

        ctypes.string_at(0)
    case "hang":
        print("waiting", flush=True)
        Path(values["file"]).with_suffix(".pid").write_text(str(os.getpid()))
        time.sleep(600)
    case "exit":
        print("license expired")
        sys.exit(7)
    case "nothing":
        sys.exit(0)
    case "garbage":
        (place / "outputs.npz").write_bytes(b"PK\x03\x04 no archive")
    case "nan":
        save_lists(place / "outputs.npz", {0: [np.full_like(each, np.nan) for each in arrays[0]]})
    case "wrong-shape":
        save_lists(place / "outputs.npz", {0: [each[:1] for each in arrays[0]]})
    case "fewer":
        save_lists(place / "outputs.npz", {0: []})
    case other:
        raise ValueError(other)
