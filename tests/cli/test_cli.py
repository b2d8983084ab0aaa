"""The command line, in processes of its own."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from slipstream.cli.progress import format_bytes, show_progress
from slipstream.cli.sizes import parse_size
from slipstream.cli.text import say
from slipstream.errors import UsageError
from tests.conftest import Run
from tests.pictures import jpeg, pixels, turned_jpeg, write_flat


def test_help_imports_neither_torch_nor_numpy() -> None:
    script = """
import sys
sys.argv = ["slipstream", *sys.argv[1:]]
from slipstream.cli.main import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, None), end.code
heavy = {"torch", "numpy", "PIL"} & set(sys.modules)
assert not heavy, heavy
"""
    for args in (["--help"], ["pack", "--help"], ["compare", "-h"], ["--version"]):
        subprocess.run(
            [sys.executable, "-c", script, *args], check=True, timeout=60, capture_output=True
        )


def test_help_lists_the_commands(run_cli: Run) -> None:
    shown = run_cli("--help").stdout
    for name in ("pack", "verify", "info", "export", "demo", "compare"):
        assert re.search(rf"\b{name}\b", shown)


def test_the_whole_way(tmp_path: Path, mixed_folder: Path, run_cli: Run) -> None:
    done = run_cli("pack", mixed_folder, tmp_path / "a.slip", "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert re.search(r"12 samples in 1 shard, [\d.]+ kB \([+-][\d.]+% against", done.stdout)
    assert "Kept as the files they were: 1 JPEG (" in done.stdout
    assert "fields: image, label (3 classes: cat, dog, newt), key\n" in done.stdout
    assert done.stdout.endswith(f"Next: slipstream verify {tmp_path / 'a.slip'}\n")
    done = run_cli("verify", tmp_path / "a.slip")
    assert done.returncode == 0
    assert "all well: 12 samples" in done.stdout
    done = run_cli("info", tmp_path / "a.slip")
    assert done.returncode == 0
    assert "7 of 12 decode by tiles" in " ".join(done.stdout.split())
    assert "  dog/cmyk.jpg: " in done.stdout
    assert "Lossy" not in done.stdout
    assert "Classes: 3 (cat, dog, newt)" in done.stdout
    done = run_cli("export", tmp_path / "a.slip", tmp_path / "back")
    assert done.returncode == 0
    original = (mixed_folder / "cat" / "422.jpg").read_bytes()
    exported = (tmp_path / "back" / "cat" / "422.jpg").read_bytes()
    np.testing.assert_array_equal(pixels(exported), pixels(original))


def test_info_as_json(mixed_dataset: Path, run_cli: Run) -> None:
    found = json.loads(run_cli("info", mixed_dataset, "--json").stdout)
    assert found["samples"] == 12
    assert found["fields"][0] == {"name": "image", "kind": "jpeg"}
    assert found["pictures"]["image"]["width"] == [1, 55, 101]
    assert sum(found["kept"].values()) == 1
    assert found["made_by"]["source"] == "class folders"


def test_verify_exits_1_and_names_the_sample(
    mixed_dataset: Path, tmp_path: Path, run_cli: Run
) -> None:
    copy = shutil.copytree(mixed_dataset, tmp_path / "a.slip")
    data = bytearray((copy / "00000.slip").read_bytes())
    data[100] ^= 1
    (copy / "00000.slip").write_bytes(data)
    done = run_cli("verify", copy)
    assert done.returncode == 1
    assert "sample 0 (cat/420.JPEG), field" in done.stdout
    assert "1 problem." in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["pack", "nowhere", "a.slip"],
        ["pack", ".", "a.slip", "--shard-size", "huge"],
        ["pack", ".", "a.slip", "--on-error", "cry"],
        ["pack", "."],
        ["verify", "nowhere"],
        ["info", "nowhere"],
        ["export", "nowhere", "out"],
        ["fly"],
        ["pack", ".", "../a.slip", "--stride", "2"],
        ["verify", "nowhere", "--threads", "0"],
        ["verify", "nowhere", "--limit", "0"],
    ],
)
def test_mistakes_exit_2_with_a_message(args: list[str], tmp_path: Path, run_cli: Run) -> None:
    write_flat(tmp_path / "photos", 1)
    done = run_cli(*args, cwd=tmp_path / "photos")
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_is_no_packed_dataset(tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "a.slip").write_bytes(b"x")
    done = run_cli("info", tmp_path / "a.slip")
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "a.slip is a file. Give the folder of the packed dataset" in told


def test_skipped_items_are_listed(tmp_path: Path, run_cli: Run) -> None:
    source = write_flat(tmp_path / "photos", 2)
    (source / "bad.jpg").write_bytes(b"x")
    done = run_cli("pack", source, tmp_path / "a.slip")
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream pack: bad.jpg: cannot be decoded")
    done = run_cli("pack", source, tmp_path / "a.slip", "--on-error", "skip")
    assert done.returncode == 0
    assert "Skipped 1 item:\n  bad.jpg: cannot be decoded" in done.stdout


def test_decoded_says_what_it_costs(tmp_path: Path, run_cli: Run) -> None:
    source = write_flat(tmp_path / "photos", 3)
    done = run_cli("pack", source, tmp_path / "a.slip", "--decoded")
    told = " ".join(done.stdout.split())
    assert re.search(r"Decoded: [\d.]+ x the bytes .* ms, decoding its file takes", told)


def test_lossy_options_say_so(tmp_path: Path, run_cli: Run) -> None:
    source = write_flat(tmp_path / "photos", 2)
    done = run_cli("pack", source, tmp_path / "a.slip", "--max-side", 50, "--quality", 80)
    assert "Lossy: --max-side and --quality changed pictures." in done.stdout
    found = json.loads(run_cli("info", tmp_path / "a.slip", "--json").stdout)
    assert found["pictures"]["image"]["width"][2] == 50


def test_info_tells_of_a_lossy_appended_part(tmp_path: Path, run_cli: Run) -> None:
    source = write_flat(tmp_path / "photos", 2)
    run_cli("pack", source, tmp_path / "a.slip")
    done = run_cli("pack", source, tmp_path / "a.slip", "--append", "--max-side", 50)
    assert "Lossy: --max-side changed pictures." in done.stdout
    shown = run_cli("info", tmp_path / "a.slip").stdout
    assert "Lossy: pictures were packed with max_side 50, in appended part 1\n" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if " " in line.strip())


def test_orient_tells_what_it_did(tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "photos").mkdir()
    for width in (96, 97):
        (tmp_path / "photos" / f"{width}.jpg").write_bytes(turned_jpeg(3, width, 64))
    done = run_cli("pack", tmp_path / "photos", tmp_path / "a.slip", "--orient")
    told = " ".join(done.stdout.split())
    assert "Turned upright: 1 of 2 JPEGs; 1 could not be turned without loss, as an edge" in told


def test_destination_inside_the_source(tmp_path: Path, run_cli: Run) -> None:
    source = write_flat(tmp_path / "photos", 1)
    done = run_cli("pack", source, source / "a.slip")
    assert done.returncode == 2
    assert "Choose a destination outside of the source" in done.stderr


def test_export_skips_on_demand_and_exits_1(tmp_path: Path, run_cli: Run) -> None:
    run_cli("pack", write_flat(tmp_path / "photos", 2), tmp_path / "a.slip")
    path = tmp_path / "a.slip" / "00000.slip"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    done = run_cli("export", tmp_path / "a.slip", tmp_path / "out", "--on-error", "skip")
    assert done.returncode == 1
    assert "Skipped 1 damaged sample: sample 0: " in " ".join(done.stdout.split())
    assert (tmp_path / "out" / "001.jpg").is_file()


def test_long_lines_wrap_at_words(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/a/very" * 15
    say(f"Numbers and texts, and a great many other words besides, are in the file {path} now")
    lines = capsys.readouterr().out.splitlines()
    assert path in [line.strip() for line in lines]
    assert all(len(line) <= 80 for line in lines if path not in line)


def test_append_labels_and_tokens(tmp_path: Path, run_cli: Run) -> None:
    source = write_flat(tmp_path / "photos", 2)
    (tmp_path / "labels.csv").write_text("000.jpg,pug\n001.jpg,cat\n")
    args = ("pack", source, tmp_path / "a.slip", "--labels", tmp_path / "labels.csv")
    assert run_cli(*args).returncode == 0
    assert "is a packed dataset already. Add to it with --append" in run_cli(*args).stderr
    assert run_cli(*args, "--append").returncode == 0
    shown = " ".join(run_cli("info", tmp_path / "a.slip").stdout.split())
    assert "4 samples, 2 shards" in shown
    np.save(tmp_path / "t.npy", np.arange(100, dtype=np.int32))
    args = ("pack", tmp_path / "t.npy", tmp_path / "t.slip", "--window", 10, "--stride", 5)
    assert "19 samples" in run_cli(*args).stdout


def test_interrupt_exits_130_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    source = write_flat(tmp_path / "photos", 1)
    picture = jpeg(640, 480)
    for number in range(600):
        (source / f"x{number}.jpg").write_bytes(picture)
    command = [sys.executable, "-m", "slipstream.cli.main", "pack", str(source)]
    command += [str(tmp_path / "a.slip"), "--shard-size", "1MB", "--workers", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "a.slip.partial" / "00000.slip").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told == "slipstream pack: interrupted; repeat the same command to go on\n"
    assert list((tmp_path / "a.slip.partial").glob("*.tmp")) == []
    assert not (tmp_path / "a.slip").exists()


def test_progress_without_a_terminal_is_rare_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with show_progress("packing", "samples") as report:
        for done in range(1, 1001):
            now[0] += 0.015625
            report(done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "packing: 320 of 1,000 samples, 64/s, 11 s left",
        "packing: 640 of 1,000 samples, 64/s, 6 s left",
        "packing: 960 of 1,000 samples, 64/s, 1 s left",
    ]


def test_progress_of_a_continued_pack_counts_new_items_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with show_progress("packing", "samples") as report:
        report(900, 1000)
        now[0] = 10.0
        report(950, 1000)
    assert capsys.readouterr().err == "packing: 950 of 1,000 samples, 5/s, 10 s left\n"


def test_sizes() -> None:
    assert [parse_size(text) for text in ("64MB", "1 GiB", "1.5kB", "77", "2m")] == [
        64_000_000, 1 << 30, 1500, 77, 2 << 20,
    ]  # fmt: skip
    assert [format_bytes(n) for n in (5, 27_600_000, 3e12)] == ["5 B", "27.6 MB", "3.0 TB"]
    for text in ("", "MB", "-1MB", "1 parsec"):
        with pytest.raises(UsageError, match="is no size"):
            parse_size(text)
