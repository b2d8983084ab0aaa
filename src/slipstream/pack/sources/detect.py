"""Which kind of source a path is."""

from pathlib import Path

from slipstream.errors import UsageError
from slipstream.pack.sources.source import Source
from slipstream.store.manifest import MANIFEST_NAME


def open_source(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> Source:
    """The source at `path`: folder of pictures (with a CSV of `labels`), tar shards, `.npy` or
    `.npz`.

    `window` and `stride` cut a 1-D integer array into windows of tokens. Raises `UsageError`.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError(f"{path} does not exist. Give a folder, a .tar, a .npy or a .npz file.")
    if (path / MANIFEST_NAME).is_file():
        raise UsageError(f"{path} is a packed dataset already: there is nothing to pack.")
    if stride is not None and window is None:
        raise UsageError("--stride needs --window.")
    is_numpy = path.suffix.lower() in (".npy", ".npz")
    if window is not None and not is_numpy:
        raise UsageError("--window is for .npy files: 1-D arrays of tokens.")
    if labels is not None:
        if not path.is_dir():
            raise UsageError(f"--labels goes with a folder of pictures; {path} is a file.")
        from slipstream.pack.sources.csv_labels import open_labelled_folder

        return open_labelled_folder(path, Path(labels))
    if is_numpy:
        from slipstream.pack.sources.numpy_files import open_numpy

        return open_numpy(path, window=window, stride=stride)
    return _open_pictures(path)


def _refuse_mixture(folder: Path, tar: Path) -> None:
    from slipstream.pack.sources.folder import printable, scan_pictures

    entries, _ = scan_pictures(folder)
    if entries:
        raise UsageError(
            f"{folder} has .tar files ({tar.name}) and pictures ({printable(entries[0].key)}):"
            " which are meant? Move one kind elsewhere, or name the .tar file."
        )


def _open_pictures(path: Path) -> Source:
    if path.is_dir():
        tars = sorted(path.glob("*.tar"))
        if not tars:
            from slipstream.pack.sources.folder import open_folder

            return open_folder(path)
        _refuse_mixture(path, tars[0])
    elif path.suffix.lower() == ".tar":
        tars = [path]
    else:
        raise UsageError(
            f"{path} is no source Slipstream knows. Give a folder, a .tar, a .npy or a .npz file;"
            " unpack compressed archives first."
        )
    from slipstream.pack.sources.tar import open_tars

    return open_tars(tars)
