"""Links that a trial makes, or that the user has, lead nowhere out of the sandbox."""

import os
from pathlib import Path

import pytest

from tests.run.sandbox_kit import in_trial, make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


def test_through_a_link_to_a_folder_of_the_user(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.symlink(os.path.abspath("data"), "latest")
        os.symlink("../../data", "data/below/up")
        Path("latest/new.txt").write_text("mine")
        os.remove("latest/a.txt")
        open("data/below/up/below/b.txt", "w").write("changed")
        print(sorted(os.listdir("data")), Path("data/below/b.txt").read_text())
        print(os.readlink("data/below/up"), os.path.islink("latest"), os.path.realpath("latest"))
        print(sorted(e.name for e in os.scandir(".") if e.is_dir()))
        shutil.rmtree(os.path.realpath("latest"))
        print(os.path.exists("latest"), os.path.lexists("latest"))
        """,
    )
    assert said.splitlines() == [
        "['below', 'new.txt'] changed",
        f"../../data True {home / 'data'}",
        "['data', 'latest']",
        "False True",
    ]


def test_through_a_link_to_a_file_of_the_user(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.symlink("log.txt", "link.txt")
        with open("link.txt", "a") as file:
            file.write("more")
        print(Path("log.txt").read_text().split(), os.lstat("link.txt").st_size)
        os.symlink("other.txt", "next.txt")
        os.replace("next.txt", "link.txt")
        print(os.path.exists("link.txt"), os.readlink("link.txt"))
        os.symlink("loop", "loop")
        try:
            open("loop")
        except OSError as error:
            print(error.strerror)
        """,
    )
    assert said.splitlines() == [
        "['line', 'more'] 7",
        "False other.txt",
        "Too many levels of symbolic links",
    ]


def test_a_hard_link_is_no_way_to_the_users_file(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.link("log.txt", "hard.txt")
        with open("hard.txt", "a") as file:
            file.write("more")
        print(Path("log.txt").read_text().split(), os.path.samefile("log.txt", "hard.txt"))
        """,
    )
    assert said.strip() == "['line', 'more'] True"


def test_links_of_the_user(home: Path) -> None:
    (home / "link").symlink_to("data")
    (home / "a.txt").symlink_to(home / "data" / "a.txt")
    said = in_trial(
        home,
        """
        Path("link/new.txt").write_text("mine")
        Path("a.txt").write_text("changed")
        print(sorted(os.listdir("data")), Path("data/a.txt").read_text())
        os.unlink("link")
        os.mkdir("link")
        print(os.listdir("link"), os.path.islink("link"))
        """,
    )
    assert said.splitlines() == ["['a.txt', 'below', 'new.txt'] changed", "[] False"]


def test_a_link_in_the_temporary_folder(home: Path) -> None:
    said = in_trial(
        home,
        f"""
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.symlink({os.fspath(home / "data")!r}, folder + "/link")
            Path(folder, "link", "a.txt").write_text("changed")
        print(Path("data/a.txt").read_text())
        """,
    )
    assert said.strip() == "changed"
