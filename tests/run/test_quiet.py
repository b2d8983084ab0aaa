"""Trials do not report to servers, whatever the script says; with stand-ins for the packages."""

from pathlib import Path

import pytest

from slipstream.launch import Target
from slipstream.run.trial import try_out

_WANDB = """
def init(project=None, mode=None):
    print("wandb", project, mode)
"""
_MLFLOW = """
import os
uri = os.environ["MLFLOW_TRACKING_URI"]

def set_tracking_uri(new):
    global uri
    uri = new

def set_registry_uri(new):
    set_tracking_uri(new)

class MlflowClient:
    def __init__(self, tracking_uri=None, registry_uri=None):
        self.uri = tracking_uri or uri
"""
_SCRIPT = """
import importlib.util, sys
sys.path.insert(0, {folder!r})
assert importlib.util.find_spec("wandb") and importlib.util.find_spec("mlflow")  # as libraries ask
from wandb import init
import mlflow, os, wandb

init(project="mine", mode="online")
wandb.init("mine")
mlflow.set_tracking_uri("http://server")
mlflow.set_registry_uri("http://server")
print(mlflow.uri)
print(os.environ.get("MLFLOW_RUN_ID"))
print(mlflow.MlflowClient("http://server").uri)
"""


def test_a_trial_reports_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "a run on a server")
    (tmp_path / "wandb.py").write_text(_WANDB)
    (tmp_path / "mlflow.py").write_text(_MLFLOW)
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT.format(folder=str(tmp_path)))
    said = try_out(Target(str(script)), seed=1).said.splitlines()
    assert said[:2] == ["wandb mine disabled"] * 2
    assert said[3] == "None"
    assert len(said) == 5
    assert all(said[at].startswith("file:///") and said[at].endswith("/mlflow") for at in (2, 4))


def test_packages_of_the_same_name_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text("mine = 3")
    (tmp_path / "mlflow.py").write_text("mine = 4")
    script = tmp_path / "train.py"
    script.write_text("import wandb, mlflow\nprint(wandb.mine + mlflow.mine)")
    assert try_out(Target(str(script)), seed=1).last_words == "7"


def test_a_script_that_has_none_of_them_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import wandb")
    assert "No module named 'wandb'" in try_out(Target(str(script)), seed=1).last_words
