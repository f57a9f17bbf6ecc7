"""Real experiment trackers, switched off: nothing is logged where the script wanted it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

#: A script that names its own server, which is not there.
SCRIPTS = {
    "mlflow": """
import mlflow
mlflow.set_tracking_uri("http://127.0.0.1:9")
with mlflow.start_run():
    mlflow.log_metric("loss", 1.0)
""",
    "wandb": """
import wandb
with wandb.init(project="mine") as run:
    run.log({"loss": 1.0})
""",
}
SWITCH_OFF = """
import sys
from pathlib import Path
from stash.engine import trackers
trackers.switch_off(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("tracker", SCRIPTS)
def test_a_script_that_tracks_its_experiment_logs_nothing_of_ours(
    tracker: str, tmp_path: Path
) -> None:
    if find_spec(tracker) is None:
        pytest.skip(f"pip install '.[{tracker}]' brings it")
    (tmp_path / "run").mkdir()
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SWITCH_OFF + SCRIPTS[tracker], str(tmp_path / "run")],
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "here").iterdir())
