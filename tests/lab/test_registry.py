"""What is left over, whose it is, and that nothing else is ever ended or removed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import lab_kills
import pytest

from rooted import NEEDS_ROOT, exists
from stash.errors import StashError, UsageError
from stash.lab import interrupts, network, processes, registry
from stash.lab.processes import Process

OPEN = """
import signal, subprocess, sys
from pathlib import Path
from stash.lab import network, resources
with network.hosts(1, "100mbit") as (host,), resources.limits(cpus=1.0) as limited:
    inside = (host.inside, limited.inside)
    stay = ["sh", "-c", "echo inside; exec sleep 600"]
    started = [subprocess.Popen([*words, *stay], stdout=subprocess.PIPE) for words in inside]
    assert all(process.stdout.readline() for process in started)
    print(host.namespace, limited.groups[0].folders[0], *(p.pid for p in started), flush=True)
    signal.pause()
"""


class Opened:
    """A process with labs of its own, and a process inside each."""

    def __init__(self) -> None:
        self.owner = subprocess.Popen(
            [sys.executable, "-c", OPEN],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.owner.stdout is not None
        namespace, group, *pids = self.owner.stdout.readline().split()
        self.made = [Path(namespace), Path(group)]
        self.pids = [int(pid) for pid in pids]

    def end(self, number: int) -> None:
        self.owner.send_signal(number)
        self.owner.wait(60)
        assert self.owner.stdout is not None
        self.owner.stdout.close()

    def is_gone(self) -> bool:
        return not any(path.exists() for path in self.made) and not any(map(exists, self.pids))


class TestWithRoot:
    pytestmark = NEEDS_ROOT

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_polite_end_leaves_nothing(self, number: int) -> None:
        opened = Opened()
        opened.end(number)
        assert opened.is_gone()

    def test_after_a_kill_the_next_start_removes_everything(self) -> None:
        killed, alive = Opened(), Opened()
        try:
            killed.end(signal.SIGKILL)
            assert all(path.exists() for path in killed.made)
            with network.hosts(1, "100mbit"):
                assert killed.is_gone()
                assert all(path.exists() for path in alive.made)  # its owner runs
                assert all(map(exists, alive.pids))
        finally:
            alive.end(signal.SIGTERM)
        assert alive.is_gone()

    def test_killed_at_a_random_moment_nothing_is_left(self) -> None:
        """Three of the benchmark's runs."""
        for seconds in (0.05, 0.15, 0.3):
            _, after = lab_kills.one_run(seconds)
            assert not any(after.values())

    def test_a_forked_process_does_not_remove_what_is_its_parents(self) -> None:
        with network.hosts(1, "100mbit") as (host,):
            block = registry.opened()
            lab = block.__enter__()
            child = os.fork()
            if child == 0:
                try:
                    block.__exit__(None, None, None)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            assert lab.folder.exists() and host.namespace.exists()
            block.__exit__(None, None, None)
            assert not lab.folder.exists()

    def test_nobody_can_look_through_labs_while_one_is_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A start that met a lab half removed would fail, or remove it a second time."""
        seen = []
        remove = registry.Lab.remove

        def observed(lab: registry.Lab) -> None:
            with (lab.root / "lock").open() as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append(lab.name)
            remove(lab)

        monkeypatch.setattr(registry.Lab, "remove", observed)
        with registry.opened(tmp_path) as lab:
            pass
        assert seen == [lab.name] and not lab.folder.exists()

    def test_a_folder_without_a_record_is_removed(self, tmp_path: Path) -> None:
        """Its maker was killed before it could write one, so it has made nothing."""
        (tmp_path / "1-abc").mkdir()
        assert registry.sweep(tmp_path) == []
        assert not (tmp_path / "1-abc").exists()

    def test_only_labs_of_dead_owners_are_swept(self, tmp_path: Path) -> None:
        mine = registry.create(tmp_path)
        dead = _written(replace(mine, name="dead", owner=_reused()))
        rebooted = _written(replace(mine, name="rebooted", boot="another", owner=None))
        kept = _written(replace(mine, name="kept", owner=None))
        elsewhere = _written(
            replace(mine, name="elsewhere", pid_namespace=1, owner=Process(1 << 30, 1))
        )
        assert sorted(registry.sweep(tmp_path)) == ["dead", "rebooted"]
        assert not dead.folder.exists() and not rebooted.folder.exists()
        assert all(lab.folder.exists() for lab in (mine, kept, elsewhere))

    def test_only_a_lab_that_was_kept_is_taken_down(self, tmp_path: Path) -> None:
        mine = registry.create(tmp_path)
        kept = _written(replace(mine, name="kept", owner=None))
        with pytest.raises(StashError, match="still runs"):
            registry.take_down(mine.name, tmp_path)
        with pytest.raises(UsageError, match="no lab other"):
            registry.take_down("other", tmp_path)
        assert registry.take_down(None, tmp_path) == ["kept"]
        assert mine.folder.exists() and not kept.folder.exists()


def _written(lab: registry.Lab) -> registry.Lab:
    lab.folder.mkdir()
    lab.write()
    return lab


def _reused() -> Process:
    """The number of a process that runs, with another start: an owner whose number was reused."""
    return replace(Process.this(), started_ticks=Process.this().started_ticks - 1)


def test_a_process_is_told_from_a_later_one_of_the_same_number() -> None:
    assert Process.this().is_running()
    assert not _reused().is_running()
    assert not Process(1 << 30, 1).is_running()


def test_a_process_that_waits_to_be_collected_does_not_run() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert processes._started_ticks(ended.pid) is None
    ended.wait()


def test_members_are_ended_and_nobody_else() -> None:
    member, other = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    try:
        processes.end_all(lambda: {member.pid} if member.poll() is None else set())
        assert member.returncode == -signal.SIGTERM
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_one_that_does_not_listen_is_made_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.1)
    deaf = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"], stdout=subprocess.PIPE
    )
    assert deaf.stdout is not None and deaf.stdout.readline()
    processes.end_all(lambda: {deaf.pid} if deaf.poll() is None else set())
    assert deaf.returncode == -signal.SIGKILL
    deaf.stdout.close()


@pytest.mark.parametrize("pid", [os.getpid(), os.getppid()])
def test_this_process_and_its_ancestors_are_never_ended(pid: int) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        with pytest.raises(StashError, match="runs inside the lab"):
            processes.end_all(lambda: {pid, other.pid})
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_one_that_left_before_it_was_signalled_is_not_signalled() -> None:
    """Membership is asked again after the handle is taken."""
    other = subprocess.Popen(["sleep", "600"])
    answers = iter([{other.pid}, set(), set()])
    try:
        processes.end_all(lambda: next(answers))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_without_root_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with (
        pytest.raises(StashError, match=r"need root.*delays.*need none"),
        network.hosts(1, "1gbit"),
    ):
        pass


@pytest.mark.parametrize("text", ['{"name": "1-abc"', '{"name": "1-abc", "of": "tomorrow"}', "[]"])
def test_a_record_that_cannot_be_read_is_left_alone(tmp_path: Path, text: str) -> None:
    record = tmp_path / "1-abc" / registry.RECORD
    record.parent.mkdir()
    record.write_text(text)
    assert registry.labs(tmp_path) == []
    assert registry._sweep(tmp_path) == []
    assert record.exists()


def test_signals_that_come_during_a_clean_up_take_effect_afterwards() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.unwinding():
        with interrupts.undisturbed():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("clean-up")
        done.append("more")
    assert done == ["clean-up"]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.unwinding():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
