"""What a trial writes is kept out of the user's files, and read back as if it were there."""

import os
import sqlite3
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from slipstream.run.sandbox.shared_memory import remove_all
from tests.run.sandbox_kit import in_trial, make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


def test_what_is_written_is_read_back(home: Path) -> None:
    said = in_trial(
        home,
        """
        Path("new").mkdir()
        Path("new/file.txt").write_text("mine")
        with open("log.txt", "a") as file:
            file.write("more\\n")
        print(Path("new/file.txt").read_text(), os.listdir("new"), open("log.txt").read().split())
        print(file.name)
        """,
    )
    assert said.splitlines() == ["mine ['file.txt'] ['line', 'more']", "log.txt"]


def test_folders_show_both(home: Path) -> None:
    said = in_trial(
        home,
        """
        open("data/c.txt", "w").close()
        os.remove("data/below/b.txt")
        print(sorted(os.listdir("data")), sorted(e.path for e in os.scandir("data")))
        print(sorted(f for _, _, files in os.walk(".") for f in files), os.listdir("data/below"))
        print(sorted(os.listdir(b"data")), sorted(map(str, Path("data").glob("*.txt"))))
        """,
    )
    assert said.splitlines() == [
        "['a.txt', 'below', 'c.txt'] ['data/a.txt', 'data/below', 'data/c.txt']",
        "['a.txt', 'c.txt', 'log.txt'] []",
        "[b'a.txt', b'below', b'c.txt'] ['data/a.txt', 'data/c.txt']",
    ]


def test_what_is_removed_is_gone_for_the_trial(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.remove("log.txt")
        shutil.rmtree("data")
        print(os.path.exists("log.txt"), os.path.isdir("data"), os.listdir("."))
        try:
            open("log.txt")
        except FileNotFoundError as error:
            print(error)
        """,
    )
    assert said.splitlines() == [
        "False False []",
        "[Errno 2] No such file or directory: 'log.txt'",
    ]


def test_a_folder_that_is_made_anew_is_empty(home: Path) -> None:
    said = in_trial(
        home,
        """
        Path("data/below/c.txt").write_text("mine")
        shutil.rmtree("data")
        os.makedirs("data/below")
        print(os.path.exists("data/a.txt"), os.listdir("data"), os.listdir("data/below"))
        Path("data/d.txt").write_text("mine")
        print(sorted(os.listdir("data")), os.path.exists("data/below/b.txt"))
        """,
    )
    assert said.splitlines() == ["False ['below'] []", "['below', 'd.txt'] False"]


def test_a_folder_is_renamed_with_all_that_is_in_it(home: Path) -> None:
    said = in_trial(
        home,
        """
        Path("data/below/c.txt").write_text("mine")
        os.remove("data/a.txt")
        os.rename("data", "old")
        print(sorted(os.listdir("old")), sorted(os.listdir("old/below")), os.path.exists("data"))
        print(Path("old/below/b.txt").read_text())
        os.mkdir("data")
        print(os.listdir("data"))
        for target in ("log.txt", "old"):
            try:
                os.rename("data" if target == "log.txt" else "log.txt", target)
            except OSError as error:
                print(type(error).__name__)
        """,
    )
    assert said.splitlines() == [
        "['below'] ['b.txt', 'c.txt'] False",
        "as it was, too",
        "[]",
        "NotADirectoryError",
        "IsADirectoryError",
    ]


def test_a_checkpoint_that_is_renamed(home: Path) -> None:
    said = in_trial(
        home,
        """
        import torch
        torch.save(obj={"a": torch.ones(2)}, f="model.tmp")
        os.replace(src="model.tmp", dst="model.pt")
        print(torch.load(f="model.pt", mmap=True)["a"].tolist(), os.path.exists("model.tmp"))
        """,
    )
    assert said.strip() == "[1.0, 1.0] False"


def test_compiled_models_that_save_themselves(home: Path) -> None:
    said = in_trial(
        home,
        """
        import torch
        (model,) = torch.nn.Sequential(torch.nn.Linear(2, 2))
        torch.jit.trace(model, torch.ones(1, 2)).save("traced.pt")
        torch.export.save(torch.export.export(model, (torch.ones(1, 2),)), "exported.pt2")
        print(torch.jit.load("traced.pt")(torch.ones(1, 2)).shape)
        print(torch.export.load("exported.pt2").module()(torch.ones(1, 2)).shape)
        """,
    )
    assert said.splitlines() == ["torch.Size([1, 2])"] * 2


def test_files_that_torch_and_python_open_in_other_ways(home: Path) -> None:
    (home / "bank.bin").write_bytes(bytes(16))
    said = in_trial(
        home,
        """
        import io, torch
        bank = torch.FloatTensor(torch.FloatStorage.from_file("bank.bin", shared=True, size=4))
        bank += 1
        print(torch.empty(0).set_(torch.UntypedStorage.from_file("bank.bin", False, 16))[:2])
        with io.FileIO("log.txt", "w") as file:
            file.write(b"new")
            print(file.name, isinstance(file, io.FileIO))
        with io.FileIO("log.txt") as file:
            print(file.read())
        with open("log.txt", "rb", buffering=0) as file:
            print(isinstance(file, io.FileIO), issubclass(type(file), io.FileIO))
        class Own(io.FileIO):
            pass
        print(isinstance(file, Own), Own("data/a.txt").read())
        try:
            io.FileIO("gone.txt")
        except FileNotFoundError as error:
            print(error.filename)
        with torch.package.PackageExporter("packed.pt") as exporter:
            exporter.save_text("words", "a.txt", "inside")
        print(torch.package.PackageImporter("packed.pt").load_text("words", "a.txt"))
        """,
    )
    assert said.splitlines() == [
        "tensor([1., 1.])",
        "log.txt True",
        "b'new'",
        "True True",
        "False b'as it was'",
        "gone.txt",
        "inside",
    ]


def test_functions_take_their_arguments_by_name(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.symlink(src="data", dst="link")
        os.link(src="log.txt", dst="hard.txt")
        os.mkdir(path="new", mode=0o755)
        os.rename(src="log.txt", dst="new/log.txt")
        os.close(os.open(path="x.txt", flags=os.O_CREAT | os.O_WRONLY))
        os.chmod(path="x.txt", mode=0o600)
        os.utime(path="x.txt", times=(1, 1))
        print(os.stat(path="x.txt").st_mtime, sorted(os.listdir(path=".")))
        os.remove(path="x.txt")
        os.unlink(path="link")
        shutil.rmtree(path="new", ignore_errors=True)
        with open(file="y.txt", mode="w") as file:
            file.write("mine")
        print(open(file="y.txt").read(), sorted(os.listdir(".")))
        """,
    )
    assert said.splitlines() == [
        "1.0 ['data', 'hard.txt', 'link', 'new', 'x.txt']",
        "mine ['data', 'hard.txt', 'y.txt']",
    ]


def test_a_script_goes_into_a_folder_that_it_has_made(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.makedirs("runs/1")
        os.chdir("runs/1")
        Path("out.txt").write_text("mine")
        print(os.getcwd(), os.getcwdb(), Path.cwd(), os.path.abspath("out.txt"), os.listdir())
        print(os.path.realpath("out.txt"), Path("../../data/a.txt").read_text())
        os.chdir("../../data")
        print(os.getcwd(), sorted(os.listdir()))
        """,
    )
    run = home / "runs" / "1"
    assert said.splitlines() == [
        f"{run} {os.fsencode(run)!r} {run} {run / 'out.txt'} ['out.txt']",
        f"{run / 'out.txt'} as it was",
        f"{home / 'data'} ['a.txt', 'below']",
    ]


def test_what_the_system_would_say_is_said(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.makedirs("data", exist_ok=True)
        calls = [
            lambda: os.mkdir("data"), lambda: os.mkdir("no/folder"), lambda: os.rmdir("data"),
            lambda: os.remove("data"), lambda: os.rmdir("log.txt"), lambda: os.remove("nothing"),
            lambda: open("no/file", "w"), lambda: open("log.txt", "x"), lambda: open("data", "w"),
            lambda: os.rename("nothing", "else"), lambda: shutil.rmtree("nothing"),
        ]
        for call in calls:
            try:
                call()
            except OSError as error:
                print(type(error).__name__, error.filename)
        """,
    )
    assert said.splitlines() == [
        "FileExistsError data",
        "FileNotFoundError no/folder",
        "OSError data",
        "IsADirectoryError data",
        "NotADirectoryError log.txt",
        "FileNotFoundError nothing",
        "FileNotFoundError no/file",
        "FileExistsError log.txt",
        "IsADirectoryError data",
        "FileNotFoundError nothing",
        "FileNotFoundError nothing",
    ]


def test_files_are_copied_and_changed(home: Path) -> None:
    said = in_trial(
        home,
        """
        Path("made.txt").write_text("mine")
        shutil.copy2("made.txt", "copy.txt")
        shutil.copytree("data", "data2")
        shutil.move("log.txt", "data2")
        os.truncate("data/a.txt", 2)
        os.chmod("data/below/b.txt", 0o600)
        cut = Path("data/a.txt").read_text()
        print(Path("copy.txt").read_text(), sorted(os.listdir("data2")), cut)
        print(oct(os.stat("data/below/b.txt").st_mode))
        """,
    )
    assert said.splitlines() == ["mine ['a.txt', 'below', 'log.txt'] as", "0o100600"]


@pytest.mark.parametrize("clones", [False, True])
def test_a_file_that_is_too_large_to_copy_is_named(home: Path, clones: bool) -> None:
    (home / "huge.bin").write_bytes(bytes(60_000_000))
    said = in_trial(
        home,
        """
        try:
            open("huge.bin", "r+b").close()
            print("open")
        except OSError as error:
            print(error)
        print(open("huge.bin", "rb").read(1))
        """,
        first=f"""
        from slipstream.run.sandbox import plain
        plain._clone = lambda old, new: {clones}
        plain._MOST_COPIED = 50_000_000
        """,
    )
    opened, read = said.splitlines()
    if clones:
        assert opened == "open"
    else:
        assert "the script writes to these 0.1 GB, or moves them" in opened
        assert read == "b'\\x00'"


def test_a_folder_that_is_too_large_to_move_is_named(home: Path) -> None:
    (home / "many").mkdir()
    for number in range(3):
        (home / "many" / f"{number}.bin").write_bytes(bytes(20_000_000))
    said = in_trial(
        home,
        """
        try:
            os.rename("many", "old")
        except OSError as error:
            print(error)
        print(sorted(os.listdir("many")), os.path.exists("old"))
        os.rename("data", "old")
        """,
        first="""
        from slipstream.run.sandbox import plain
        plain._MOST_COPIED = 50_000_000
        """,
    )
    refused, listed = said.splitlines()
    assert "the script writes to these 0.1 GB, or moves them" in refused
    assert listed == "['0.bin', '1.bin', '2.bin'] False"


def test_folders_that_are_open_are_mapped(home: Path) -> None:
    said = in_trial(
        home,
        """
        folder = os.open("data", os.O_RDONLY)
        os.unlink("a.txt", dir_fd=folder)
        os.close(os.open("new.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        print(sorted(os.listdir("data")), os.path.exists("data/new.txt"))
        """,
    )
    assert said.strip() == "['below', 'new.txt'] True"


def test_shared_memory_is_mapped_and_works(home: Path) -> None:
    kept = Path("/dev/shm") / f"slipstream-test-{os.getpid()}"
    kept.write_text("the user's")
    try:
        said = in_trial(
            home,
            f"""
            kept, new = "{kept}", "{kept}-new"
            print(open(kept).read())
            os.remove(kept)
            Path(new).write_text("mine")
            is_listed = Path(new).name in os.listdir("/dev/shm")
            print(os.path.exists(kept), Path(new).read_text(), is_listed)

            import multiprocessing
            from multiprocessing.shared_memory import SharedMemory
            import torch
            numbers = multiprocessing.Array("i", [1, 2])
            memory = SharedMemory(create=True, size=16)
            memory.buf[0] = 7
            other = SharedMemory(memory.name)
            print(numbers[:], other.buf[0])
            other.close()
            memory.close()
            memory.unlink()
            torch.multiprocessing.set_sharing_strategy("file_system")
            queue = torch.multiprocessing.SimpleQueue()
            worker = multiprocessing.Process(target=lambda: queue.put(torch.ones(3)))
            worker.start()
            print(queue.get().tolist())
            worker.join()
            """,
        )
        assert kept.read_text() == "the user's"
        assert not Path(f"{kept}-new").exists()
    finally:
        kept.unlink()
    assert said.splitlines() == ["the user's", "False mine True", "[1, 2] 7", "[1.0, 1.0, 1.0]"]


def test_named_shared_memory_is_the_trials_own(home: Path) -> None:
    """That of the user is there, and is not removed."""
    name = f"slipstream-named-{os.getpid()}"
    users = SharedMemory(name=name, create=True, size=16)
    users.buf[0] = 7
    try:
        said = in_trial(
            home,
            f"""
            from multiprocessing.shared_memory import SharedMemory
            users = SharedMemory(name="{name}")
            print(users.buf[0])
            users.buf[0] = 5
            new = SharedMemory(name="{name}-new", create=True, size=16)
            new.buf[0] = 8
            again = SharedMemory(name="{name}-new")
            print(again.buf[0], open("/dev/shm/{name}-new", "rb").read(1))
            users.unlink()
            try:
                SharedMemory(name="{name}")
            except FileNotFoundError:
                print("gone")
            mine = SharedMemory(name="{name}", create=True, size=16)
            mine.buf[0] = 9
            os.unlink("/dev/shm/{name}")
            SharedMemory(name="{name}", create=True, size=16).unlink()
            """,
        )
        assert said.splitlines() == ["7", "8 b'\\x08'", "gone"]
        assert users.buf[0] == 7
        remove_all(home.parent / "trial")
        assert not [*Path("/dev/shm").glob(f"slipstream-shared-*{name}*")]
        assert Path(f"/dev/shm/{name}").exists()
        assert not Path(f"/dev/shm/{name}-new").exists()
    finally:
        users.close()
        users.unlink()


DATABASES = {
    "name": "sqlite3.connect('runs.db')",
    "path": "sqlite3.connect(Path('runs.db'))",
    "uri": "sqlite3.connect('file:runs.db', uri=True)",
    "absolute uri": "sqlite3.connect(f'file://{os.getcwd()}/runs.db?mode=rw', uri=True)",
}


@pytest.mark.parametrize("how", DATABASES.values(), ids=DATABASES)
def test_databases_are_the_trials_own(home: Path, how: str) -> None:
    with sqlite3.connect(home / "runs.db") as database:
        database.execute("create table losses (loss)")
        database.execute("insert into losses values (1.5)")
    database.close()
    code = f"""
    import sqlite3
    for value in (2.5, 3.5):
        database = {how}
        database.execute("insert into losses values (?)", (value,))
        database.commit()
        database.close()
    with sqlite3.connect("file:runs.db?mode=ro", uri=True) as database:
        print(*(row[0] for row in database.execute("select loss from losses")))
    memory = sqlite3.connect(":memory:")
    memory.execute("create table a (b)")
    with sqlite3.connect("new.db") as database:
        database.execute("create table a (b)")
    print(os.path.exists("new.db"))
    """
    assert in_trial(home, code).split() == ["1.5", "2.5", "3.5", "True"]


def test_what_profilers_write_is_the_trials_own(home: Path) -> None:
    (home / "trace.json").write_text("of another day")
    (home / "rows.bin").write_bytes(bytes(16))
    code = """
    import torch
    observer = torch.profiler.ExecutionTraceObserver().register_callback("observed.json")
    with torch.profiler.profile(execution_trace_observer=observer) as profiled:
        torch.ones(2).sum()
    profiled.export_chrome_trace("trace.json")
    rows = torch.from_file("rows.bin", shared=True, size=4)
    rows.fill_(1)
    print(*torch.from_file("rows.bin", size=4).tolist())
    print("traceEvents" in Path("trace.json").read_text(), os.path.exists("observed.json"))
    """
    assert in_trial(home, code).split() == 4 * ["1.0"] + ["True", "True"]


def test_a_lock_of_an_earlier_run_is_emptied(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.close(os.open("data/a.txt", os.O_RDWR | os.O_TRUNC))
        print(os.path.getsize("data/a.txt"))
        """,
    )
    assert said == "0\n"
    assert (home / "data" / "a.txt").stat().st_size
