"""Process actions on real child processes of the test, and refusals."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpwatch.attach import inject_tree
from mpwatch.attach.outcomes import Detached
from mpwatch.attach.process_actions import ActionRefused, ProcessActions
from mpwatch.model.ids import ProcessId
from mpwatch.tui.screens.process_actions import offered_actions, stacks_text, write_new
from tests import procfs
from tests.tui.scripted import loader_job


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def identity(pid: int) -> ProcessId:
    return ProcessId(pid, int(procfs.start_ticks(pid)))


def test_a_signal_reaches_its_process(sleeper: subprocess.Popen[bytes]) -> None:
    told = ProcessActions().signal(identity(sleeper.pid), signal.SIGTERM)

    assert told == f"SIGTERM was sent to {sleeper.pid}."
    assert sleeper.wait(20) == -signal.SIGTERM


def test_a_reused_pid_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    other = ProcessId(sleeper.pid, identity(sleeper.pid).start_ticks + 1)

    with pytest.raises(ActionRefused, match="has ended"):
        ProcessActions().signal(other, signal.SIGKILL)

    assert sleeper.poll() is None


def test_a_signal_to_an_ended_process_is_refused_with_the_reason(
    sleeper: subprocess.Popen[bytes],
) -> None:
    process = identity(sleeper.pid)
    sleeper.kill()
    sleeper.wait(20)

    with pytest.raises(ActionRefused, match="has ended"):
        ProcessActions().signal(process, signal.SIGTERM)


def test_the_soft_limit_of_a_running_process_is_raised(sleeper: subprocess.Popen[bytes]) -> None:
    _, hard = resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE, (64, hard))

    told = ProcessActions().raise_descriptors(identity(sleeper.pid))

    assert resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert str(hard) in told


def test_an_error_of_the_system_becomes_one_sentence() -> None:
    def refuse(process: ProcessId, number: int) -> None:
        raise PermissionError

    with pytest.raises(ActionRefused, match="belongs to another user"):
        ProcessActions(send=refuse).signal(ProcessId(1, 1), signal.SIGTERM)


@pytest.mark.parametrize("recording", [None, "mpwatch-recording-41823-20261126.mpw"])
def test_the_effect_of_each_action_fits_on_80_cells(recording: str | None) -> None:
    root = loader_job().processes[0]

    offered = offered_actions(root, is_live=True, recording=recording, has_hooks=True)

    assert len(offered) == 9
    assert [each.words for each in offered if len(each.words) > 50] == []


def test_stacks_as_text_contain_every_process_thread_and_frame() -> None:
    text = stacks_text(loader_job())

    assert "41829 worker 3" in text
    assert "data.py:31 decode  (/home/ada/train/data.py)" in text


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    there = tmp_path / "notes.txt"
    there.write_text("mine")

    with pytest.raises(ActionRefused, match="File exists"):
        write_new(str(there), "theirs")

    assert there.read_text() == "mine"


def test_a_process_with_a_pending_detach_is_not_reported_as_detached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcomes = [
        Detached(ProcessId(100, 1), "absent"),
        Detached(ProcessId(101, 1), "pending", "it is detached when it runs Python code again"),
    ]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(inject_tree, "detach_tree", lambda *_, **__: outcomes)

    words = ProcessActions().detach([])

    assert words == (
        "The hook is still attached in 1 of 2 processes: "
        "it is detached when it runs Python code again"
    )


def test_a_detach_that_could_not_be_logged_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    outcomes = (Detached(ProcessId(100, 1), "absent", method="socket"),)

    def detach_tree(_: object, report: Callable[[Detached], None], **__: object) -> object:
        report(outcomes[0])
        return outcomes

    monkeypatch.setattr(inject_tree, "detach_tree", detach_tree)

    words = ProcessActions().detach([])

    assert words.startswith("The hook was detached from every process. The log of detaches is not")
