"""Goes into a sandbox: there is no way back, a trial is thrown away."""

import os
import tempfile
from pathlib import Path

from slipstream.run.sandbox import databases, processes, shared_memory, torch_files
from slipstream.run.sandbox.files import Files
from slipstream.run.sandbox.held import replace_all
from slipstream.run.sandbox.layers import Layers
from slipstream.run.sandbox.libraries import map_libraries


def enter(folder: str | Path) -> None:
    """Before the script starts. What is written goes below `folder`, whose parent is free for
    all; whoever enters the same folder sees the same files.
    """
    folder = Path(folder).absolute()
    layers = Layers(folder)
    temporary = folder.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = str(temporary)  # whatever the script says: sockets there are not mapped
    files = Files(layers).wrapped()
    replace_all(
        {
            **files,
            **shared_memory.wrapped(layers, folder, files[os.unlink]),
            **torch_files.wrapped(layers),
            **databases.wrapped(layers),
            **processes.wrapped(layers, folder),
        }
    )
    map_libraries(layers)
