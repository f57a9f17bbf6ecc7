"""Generated jobs: what a shell and the platforms' own schemas make of them, whatever is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.running import until
from links import links_of
from profiles import HAND_WORKED, noisy, profile_of
from stash.cli.launch import _print_profile
from stash.cli.main import main
from stash.errors import StashError
from stash.launch import carry, kubernetes, sky, slurm
from stash.launch.job import Job

#: Names that a shell, YAML or a batch system would trip over, were they not quoted.
NASTY = ("it's", "$HOME", "a b", "--lr=`id`", "x: y", "#no", "&", "'; echo pwned; '")
JOB = Job(
    workload="my train.py",
    options=("my train.py", "--max-minutes", "2"),
    script_arguments=NASTY,
    nodes=2,
    workers_per_node=4,
)
Captured = pytest.CaptureFixture[str]


def words_seen(script: str, folder: Path, variables: dict[str, str]) -> list[str]:
    """Run a shell script whose Python only tells its words; those of `stash profile`."""
    for name in ("python3", "srun", "scontrol"):
        (folder / name).write_text(STAND_INS[name].format(python=sys.executable))
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, **variables, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


#: Python tells the words that it was given, and is itself where it carries; srun runs one task.
STAND_INS = {
    "python3": """#!{python}
import json, os, sys
if "stash.launch.carry" in sys.argv:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.stdout.write(json.dumps(sys.argv[1:]))
""",
    "srun": '#!/bin/sh\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\nexec "$@"\n',
    "scontrol": '#!/bin/sh\n[ "$2" = node ] && echo "   NodeAddr=10.0.0.7 Port=1" || echo n7\n',
}

EXPECTED = ["-m", "stash", "profile", "my train.py", "--max-minutes", "2"]
PLACED = ["--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint"]


def test_a_sky_task_runs_the_very_words_on_every_node(tmp_path: Path) -> None:
    options = sky.SkyOptions(infra="aws/us-east-1", accelerators="V100:8", setup=("true", "echo x"))
    task = yaml.safe_load(sky.task(JOB, options))
    assert task["num_nodes"] == 2 and task["setup"] == "true\necho x"
    assert task["resources"] == {"infra": "aws/us-east-1", "accelerators": "V100:8"}
    variables = {"SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8", "SKYPILOT_NODE_RANK": "1"}
    seen = words_seen(task["run"], tmp_path, variables)
    assert seen == [*EXPECTED, "--json", *PLACED, "10.0.0.7:29400", "--", *NASTY]


def test_a_trainjob_runs_the_very_words_on_every_node(tmp_path: Path) -> None:
    job = yaml.safe_load(kubernetes.manifest(JOB, kubernetes.KubernetesOptions(gpus_per_node=4)))
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "4"}
    bash, dash_c, script = trainer["command"]
    assert (bash, dash_c) == ("bash", "-c")
    told = {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "first.svc", "PET_MASTER_PORT": "29500"}
    seen = words_seen(script, tmp_path, told)
    assert seen == [*EXPECTED, "--json", *PLACED, "first.svc:29500", "--", *NASTY]


def test_an_sbatch_script_runs_the_very_words_on_every_node(tmp_path: Path) -> None:
    options = slurm.SlurmOptions(out=tmp_path / "o ut", python="python3", setup=("true",))
    told = {"SLURM_JOB_NODELIST": "n[7-8]", "SLURM_JOB_ID": "20003", "SLURM_NODEID": "1"}
    seen = words_seen(slurm.script(JOB, options), tmp_path, told)
    out = ["--out", str(tmp_path / "o ut")]
    assert seen == [*EXPECTED, *out, *PLACED, "10.0.0.7:20003", "--", *NASTY]


def test_one_node_needs_no_meeting_point() -> None:
    alone = Job(workload="resnet18", options=("resnet18",))
    for text in (
        sky.task(alone, sky.SkyOptions()),
        kubernetes.manifest(alone, kubernetes.KubernetesOptions()),
        slurm.script(alone, slurm.SlurmOptions(out=Path("out"), python="python3")),
    ):
        assert "rdzv" not in text and "stash profile resnet18" in text


def test_an_sbatch_line_takes_no_quotes_and_no_second_line(tmp_path: Path) -> None:
    for name in ('a"b', "a\n#SBATCH --uid=0", "a\\b"):
        with pytest.raises(StashError, match="cannot stand in an #SBATCH line"):
            slurm.script(JOB, slurm.SlurmOptions(out=tmp_path, python="p", partition=name))
    more = ("--qos=high", "exclusive")
    options = slurm.SlurmOptions(out=Path("/a b/100%"), python="p", directives=more)
    text = slurm.script(JOB, options)
    assert '#SBATCH --output="/a b/100%%/slurm-%j.log"' in text
    assert "#SBATCH --qos=high\n" in text and "#SBATCH --exclusive\n" in text


def sbatch_lines(*words: str, capsys: Captured) -> list[str]:
    """What `stash launch slurm` asks sbatch for."""
    assert main(["launch", "slurm", "resnet18", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]


def test_a_job_that_asks_for_no_cores_gets_whole_nodes(capsys: Captured) -> None:
    assert "exclusive" in sbatch_lines("--directive", "qos=high", capsys=capsys)


def test_cores_that_were_asked_for_are_those_of_the_one_task_of_a_node(capsys: Captured) -> None:
    lines = sbatch_lines("--cpus-per-node", "12", capsys=capsys)
    assert {"ntasks-per-node=1", "cpus-per-task=12"} <= set(lines) and "exclusive" not in lines


@pytest.mark.parametrize(
    "own", ["exclusive=user", "--exclusive", "cpus-per-task=4", "cpus-per-gpu=6", "oversubscribe"]
)
def test_what_users_say_themselves_about_cores_is_all_that_is_said(
    own: str, capsys: Captured
) -> None:
    lines = sbatch_lines("--directive", own, capsys=capsys)
    about = [line for line in lines if line.startswith(("exclusive", "cpus", "oversubscribe"))]
    assert about == [own.lstrip("-")]


def test_the_task_of_a_node_is_bound_to_no_core(tmp_path: Path) -> None:
    text = slurm.script(JOB, slurm.SlurmOptions(out=tmp_path, python="p"))
    (line,) = [line for line in text.splitlines() if line.startswith("srun ")]
    assert "--cpu-bind=none" in line.split()


def test_lines_of_setup_may_read_variables_that_are_not_set(tmp_path: Path) -> None:
    setup = ('echo "$STASH_IS_NOT_SET"', "true")
    alone = Job(workload="resnet18", options=("resnet18",))
    options = slurm.SlurmOptions(out=tmp_path / "out", python="python3", setup=setup)
    assert words_seen(slurm.script(alone, options), tmp_path, {})[2:4] == ["profile", "resnet18"]
    broken = slurm.SlurmOptions(out=tmp_path / "out", python="python3", setup=("false",))
    assert subprocess.run(["bash", "-c", slurm.script(alone, broken)]).returncode == 1


@pytest.mark.parametrize("workload", ["resnet18", "Train_2.py", "/a/ü.py:f", "..", "x" * 200])
def test_every_workload_gives_a_name_that_all_platforms_allow(workload: str) -> None:
    name = Job(workload=workload, options=(workload,)).name
    assert name.startswith("stash-") and len(name) <= 63 and not name.endswith("-")
    assert all(c.isascii() and (c.isalnum() or c == "-") and c == c.lower() for c in name)


def test_a_second_trainjob_of_a_workload_has_a_name_of_its_own() -> None:
    longest = Job(workload="x" * 200, options=("x",), nodes=100)
    first, second = kubernetes.KubernetesOptions(), kubernetes.KubernetesOptions()
    for job in (JOB, longest):
        name = yaml.safe_load(kubernetes.manifest(job, first))["metadata"]["name"]
        assert name != yaml.safe_load(kubernetes.manifest(job, second))["metadata"]["name"]
        assert len(f"{name}-node-0-99-abcde") <= 63
        assert f"jobset-name={name}," in kubernetes.how_to_fetch(job, first)


def test_the_manifest_follows_the_published_schema_of_kubeflow_trainer() -> None:
    models = pytest.importorskip(
        "kubeflow_trainer_api.models", reason="pip install '.[dev]' has Trainer's schema"
    )
    options = kubernetes.KubernetesOptions(
        image="i:1", namespace="team", gpus_per_node=4, cpus_per_node="8", memory_per_node="32Gi"
    )
    document = yaml.safe_load(kubernetes.manifest(JOB, options))
    job = models.TrainerV1alpha1TrainJob.from_dict(document)
    assert job.spec.trainer.num_nodes == 2 and job.spec.runtime_ref.name == "torch-distributed"
    # The schema's classes drop what they do not know: nothing of ours may be missing.
    assert _plain(job.to_dict()) == document
    document["spec"]["trainer"]["numNodes"] = "two"
    with pytest.raises(ValueError, match="numNodes"):
        models.TrainerV1alpha1TrainJob.from_dict(document)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda one: one.to_dict()))


PARSE = """
import sys
import sky
task = sky.Task.from_yaml(sys.argv[1])
print(task.num_nodes, task.name, sorted(r.accelerators["V100"] for r in task.resources))
"""


def test_skypilots_own_parser_takes_the_task(tmp_path: Path) -> None:
    python = os.environ.get("STASH_SKYPILOT_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import sky"], capture_output=True).returncode:
        pytest.skip("SkyPilot is not here: STASH_SKYPILOT_PYTHON names a Python that has it")
    path = tmp_path / "task.yaml"
    options = sky.SkyOptions(accelerators="V100:8", spot=True, setup=("echo a", "echo b"))
    path.write_text(sky.task(JOB, options))
    done = subprocess.run([python, "-c", PARSE, path], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["2 stash-my-train [8]"], done.stderr


def test_a_profile_comes_back_through_a_log_with_prefixes_and_other_lines_in_between() -> None:
    profile = profile_of(noisy(HAND_WORKED, rounds=60))
    lines = carry.pack(profile.to_json())
    assert len(lines) > 3 and all(len(line) < 5000 for line in lines)
    noise = [f"(head, rank=0, pid=7) {line}\n(worker1, rank=1, pid=8) chatter" for line in lines]
    assert carry.unpack("\n".join(["started", *noise, "Job finished."])) == profile


def test_a_job_that_was_started_anew_tells_its_last_profile() -> None:
    first, second = profile_of(), profile_of().model_copy(update={"id": "0ther"})
    cut = carry.pack(first.to_json())[:-1]
    log = "\n".join([*cut, *carry.pack(second.to_json())])
    assert carry.unpack(log) == second


def test_a_log_without_a_whole_profile_says_what_is_wrong() -> None:
    lines = carry.pack(profile_of().to_json())
    with pytest.raises(StashError, match="no profile in this log"):
        carry.unpack("Traceback ...")
    with pytest.raises(StashError, match=r"holds \d+ of \d+ parts"):
        carry.unpack("\n".join(lines[:-1]))
    with pytest.raises(StashError, match="damaged"):
        carry.unpack("\n".join([lines[0].replace("/", "/", 1)[:-40] + "A" * 40, *lines[1:]]))


def test_a_log_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry, "MAX_FILE_BYTES", 10_000)
    with pytest.raises(StashError, match="larger than any profile"):
        carry.unpack("\n".join(carry.pack("0" * 1_000_000)))


def test_the_carrier_passes_on_what_is_no_profile(tmp_path: Path) -> None:
    document = tmp_path / "document"
    command = [sys.executable, "-m", "stash.launch.carry", "cat", str(document)]
    for told in ('{"error": "no"}', links_of().to_json()):
        document.write_text(told)
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == told
    document.write_text(profile_of().to_json())
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert carry.unpack(done.stdout) == profile_of()


def test_the_carrier_ends_as_its_command_did() -> None:
    command = [sys.executable, "-m", "stash.launch.carry", "sh", "-c"]
    for ending, code in (("exit 3", 3), ("kill -9 $$", 137)):
        assert subprocess.run([*command, ending]).returncode == code


#: Stands for `stash profile`: once it is asked to end, it tells what it has.
ENDS_POLITELY = """#!{python}
import os, pathlib, signal, sys
if "stash.launch.carry" in sys.argv:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
folder, asked = pathlib.Path(sys.argv[0]).parent, [signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, asked)
(folder / "measures").touch()
signal.sigwait(asked)
sys.stdout.write((folder / "document").read_text())
sys.exit(3)
"""


@pytest.mark.parametrize("platform", ["sky", "kubernetes"])
def test_a_job_that_is_preempted_tells_the_rounds_that_it_has(
    platform: str, tmp_path: Path
) -> None:
    alone = Job(workload="resnet18", options=("resnet18",))
    if platform == "sky":
        script = yaml.safe_load(sky.task(alone, sky.SkyOptions()))["run"]
    else:
        manifest = kubernetes.manifest(alone, kubernetes.KubernetesOptions(setup=("true",)))
        script = yaml.safe_load(manifest)["spec"]["trainer"]["command"][2]
    (tmp_path / "document").write_text(profile_of().to_json())
    (tmp_path / "python3").write_text(ENDS_POLITELY.format(python=sys.executable))
    (tmp_path / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert until((tmp_path / "measures").exists, 30)
            running.terminate()
            log, _ = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 3
    assert carry.unpack(log) == profile_of()


def test_fetch_keeps_the_profile_of_a_log(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join(carry.pack(profile_of().to_json())))
    assert main(["launch", "fetch", str(log), "--out", str(tmp_path / "kept")]) == 0
    assert "Profile written to" in capsys.readouterr().out
    assert len(list((tmp_path / "kept").glob("*.json"))) == 1
    assert main(["launch", "fetch", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("launch slurm resnet18 --bogus 3", "No such option: --bogus"),
        ("launch sky resnet18 --batch-size", "--batch-size"),
        ("launch kubernetes resnet18 --node-rank 1", "a job decides that"),
        ("launch slurm resnet18 --nnodes 0", "--nnodes must be 1 or more"),
        ("launch slurm", "WORKLOAD"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_submitted(
    words: str, message: str, capsys: Captured
) -> None:
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_words_of_the_script_stay_behind_the_dashes(capsys: Captured) -> None:
    assert main(["launch", "slurm", "t.py", "--json", "--max-minutes", "3", "--", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    assert "profile t.py --max-minutes 3 --out" in job and "-- --json" in job


@pytest.mark.parametrize(
    ("platform", "program"), [("slurm", "sbatch"), ("sky", "sky"), ("kubernetes", "kubectl")]
)
def test_a_platform_that_is_not_here_is_named(
    platform: str, program: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["launch", platform, "resnet18", "--submit"]) == 2
    assert f"no `{program}` here, so nothing was submitted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stopped", "code"), [("half-width", 0), ("failed", 1), ("interrupted", 3)]
)
def test_a_job_that_failed_is_no_success_here_either(
    stopped: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = profile_of(noisy(HAND_WORKED))
    run = profile.run.model_copy(update={"stopped_because": stopped})
    assert _print_profile(profile.model_copy(update={"run": run}), tmp_path, True) == code


@pytest.mark.parametrize("platform", ["slurm", "sky", "kubernetes"])
def test_a_sweep_is_no_job(platform: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", platform, "resnet18", "--sweep", "1,2"]) == 2
    assert "a job is one profile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "--instance g4dn.xlarge"),
        (["--price-usd-per-hour", "1"], "--price-usd-per-hour 1 --instance g4dn.xlarge"),
        (["--spot"], "--instance g4dn.xlarge --price-usd-per-hour "),
    ],
)
def test_a_rented_machine_is_told_to_the_profile(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["launch", "sky", "resnet18", "--instance", "g4dn.xlarge", *options]
    assert main(words) == 0
    assert told in " ".join(yaml.safe_load(capsys.readouterr().out)["run"].split())


def test_a_machine_that_the_catalog_does_not_know_is_not_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["launch", "sky", "resnet18", "--instance", "x9.huge"]) == 0
    assert "--instance" not in yaml.safe_load(capsys.readouterr().out)["run"]
