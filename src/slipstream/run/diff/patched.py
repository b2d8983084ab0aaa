"""Runs a script as a patch would leave it: `-m slipstream.run.diff.patched FILE SCRIPT ARGS`.

No file is changed: Python is given the new texts where it asks for those of the files.
"""

import json
import linecache
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from slipstream import launch
from slipstream.patches import Patches


def main() -> None:
    """What it raises is the script's."""
    texts: dict[str, str] = json.loads(Path(sys.argv[1]).read_text())
    target = launch.parse_target(sys.argv[2:], "run")
    patches = Patches()

    def wrap_get_code(original: Any) -> Any:
        def get_code(loader: Any, name: str) -> CodeType | None:
            path = str(Path(loader.path).resolve())
            return _compiled(loader.path, texts[path]) if path in texts else original(loader, name)

        return get_code

    def wrap_compiled(original: Any) -> Any:
        def compiled(path: Path) -> CodeType:
            real = str(path.resolve())
            text = texts.get(real)
            if text is None:
                return original(path)  # type: ignore[no-any-return]
            return _compiled(str(path.absolute()), text)

        return compiled

    patches.replace(SourceFileLoader, "get_code", wrap_get_code)
    patches.replace(launch, "_compiled", wrap_compiled)
    code = None if target.is_module else launch._compiled(Path(target.name))
    launch._run(target, code)


def _compiled(path: str, text: str) -> CodeType:
    # Whoever looks at the source of a function finds these lines.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    return compile(text, path, "exec", dont_inherit=True)


if __name__ == "__main__":
    main()
