"""The user's own files, as places of a recording name them."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

from slipstream.doctor.record.places import is_foreign
from slipstream.launch import Target
from slipstream.run.diff.source import NoEdit, Source


class Workspace:
    """Files are read when they are first asked for. `folder` is where the script was run."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.folder = folder
        self._target = target
        self._sources: dict[Path, Source] = {}

    def main(self) -> Source:
        """The script itself."""
        if not self._target.is_module:
            return self.source(self.folder / self._target.name)
        return self.source(_file_of(self._target.name, self.folder))

    @property
    def is_in_package(self) -> bool:
        """Whether other code is loaded before the script."""
        return self._target.is_module and "." in self._target.name

    def at(self, where: str | None) -> tuple[Source, int]:
        """The file of a place, and its line."""
        if not where:
            raise NoEdit("no line of the script is known for it")
        name, _, line = where.rpartition(":")
        if name.startswith("<") or not line.isdigit():
            raise NoEdit(f"{where} is in no file")
        return self.source(self.folder / name), int(line)

    def source(self, path: Path) -> Source:
        """A file that is the user's."""
        path = path.resolve()
        if path not in self._sources:
            if is_foreign(str(path)):
                raise NoEdit(f"{path.name} is not your file")
            self._sources[path] = Source(path)
        return self._sources[path]


def _file_of(module: str, folder: Path) -> Path:
    """Without loading the packages that it is in."""
    places: list[str] | None = [str(folder), *sys.path]
    origin = None
    for name in [*module.split("."), "__main__"]:
        spec = PathFinder.find_spec(name, places) if places is not None else None
        if spec is None:
            break
        origin = spec.origin
        locations = spec.submodule_search_locations
        places = None if locations is None else list(locations)
    if origin is None or (places is not None and not origin.endswith("__main__.py")):
        raise NoEdit(f"the file of -m {module} was not found")
    return Path(origin)
