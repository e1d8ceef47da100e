"""Injections and detaches leave one line in the log, whenever mpwatch is killed.

The line is kept beside the log before the target is changed. The next mpwatch writes it to the log.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpwatch
from mpwatch.attach.inject import inject
from mpwatch.attach.injection_log import NO_RESULT
from mpwatch.collect.hook import decode
from mpwatch.model.ids import ProcessId
from tests.integration.attach.conftest import Running, Start
from tests.procfs import eventually, hook_threads

pytestmark = pytest.mark.slow

# Injects or detaches as the dashboard does, and is killed as soon as the result is known.
KILLED = """
import os, signal, sys
from mpwatch.attach.attach_session import AttachSession
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.procfs import stat_of

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(InjectionLog, sys.argv[3], die)
root = stat_of(int(sys.argv[1])).process
tree = TreeCollector(root).collect(ReadRequest(threads=False, links_count=0, maps_count=0,
                                               memory_count=0, gpu=False))
session = AttachSession(root, log=InjectionLog(sys.argv[2]))
session.inject(tree.processes, lambda status: None)
session.end()
"""


def run_killed(running: Running, state: Path, at: str) -> list[str]:
    """The lines of the log after an mpwatch was killed at its first result of a kind.

    They are written by the next mpwatch.
    """
    folder = state / "mpwatch"
    command = [sys.executable, "-c", KILLED, str(running.pid), str(folder), at]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    doctor = subprocess.run(
        [sys.executable, "-m", "mpwatch", "doctor", str(running.pid)],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert NO_RESULT in " ".join(doctor.stdout.split()), doctor.stdout
    assert os.listdir(folder) == ["attach.log"]
    return (folder / "attach.log").read_text().splitlines()


def test_an_injection_whose_observer_is_killed_has_a_line(start: Start, tmp_path: Path) -> None:
    running = start("attach_plain", "idle")
    (line,) = run_killed(running, tmp_path, "injected")

    assert eventually(lambda: hook_threads(running.pid) == 1)
    assert " inject " in line
    assert f" pid={running.pid} " in line
    assert ' method="pending call" ' in line
    assert f" hook={mpwatch.__version__}/{decode.own_version()} " in line
    assert f' stopped_ms=unknown result="{NO_RESULT}" ' in line
    assert "attach_plain" in line


def test_a_detach_whose_observer_is_killed_has_a_line(start: Start, tmp_path: Path) -> None:
    running = start("attach_plain", "idle")
    injected, detach = run_killed(running, tmp_path, "detached")

    assert eventually(lambda: hook_threads(running.pid) == 0)
    assert " inject " in injected
    assert " result=ready " in injected
    assert " detach " in detach
    assert " method=socket " in detach
    assert NO_RESULT in detach


@pytest.mark.parametrize("keep", [["--keep"], []])
def test_an_injection_is_completed_although_several_signals_end_mpwatch(
    start: Start, tmp_path: Path, keep: list[str]
) -> None:
    running = start("attach_plain", "blocked")
    command = ["dump", str(running.pid), "--hook", "--no-stacks", *keep]
    dump = subprocess.Popen(
        [sys.executable, "-m", "mpwatch", *command],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    runtime = runtime_of(running)
    assert eventually(lambda: any(runtime.glob("attach-*/handed-over")))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        dump.send_signal(number)
        time.sleep(0.1)
    assert dump.wait(60) == 128 + signal.SIGINT

    lines = (tmp_path / "mpwatch" / "attach.log").read_text().splitlines()
    assert ' result="pending: its main thread is blocked' in lines[0]
    left = list(runtime.glob("attach-*"))
    if keep:
        assert [(each / "unattended").exists() for each in left] == [True]
    else:
        assert left == []
        assert " result=detached " in lines[1]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_detach_names_the_hook_that_was_removed(
    start: Start, tmp_path: Path, is_silent: bool
) -> None:
    """Not the hook that this mpwatch would inject."""
    running = start("attach_plain", "idle")
    source = Path(mpwatch.__file__).parent
    other = tmp_path / "other"
    shutil.copytree(source, other / "mpwatch", ignore=shutil.ignore_patterns("__pycache__"))
    wire = other / "mpwatch" / "hook" / "wire.py"
    wire.write_text(wire.read_text().replace(f'"{mpwatch.__version__}"', '"0.0.7"') + "\n")
    program = (
        "import sys\n"
        "from mpwatch.attach.inject import inject\n"
        "from mpwatch.collect.hook import decode\n"
        "from mpwatch.collect.process.procfs import stat_of\n"
        "done = inject(stat_of(int(sys.argv[1])).process, timeout_s=20)\n"
        "assert done.state == 'ready', done\n"
        "print(decode.own_version())\n"
    )
    others = [path for path in sys.path if "site-packages" in path]
    done = subprocess.run(
        [sys.executable, "-c", program, str(running.pid)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(other), *others])},
        cwd=other,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    checksum = done.stdout.strip()
    assert checksum != decode.own_version()
    if is_silent:
        for socket in Path(os.fspath(runtime_of(running))).glob("*.sock"):
            socket.unlink()

    state = tmp_path / "state"
    subprocess.run(
        [sys.executable, "-m", "mpwatch", "detach", str(running.pid)],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        timeout=90,
        check=True,
    )

    (line,) = (state / "mpwatch" / "attach.log").read_text().splitlines()
    assert " detach " in line
    assert " result=detached " in line
    assert f" hook=0.0.7/{checksum} " in line


def runtime_of(running: Running) -> Path:
    environment = Path(f"/proc/{running.pid}/environ").read_bytes().split(b"\0")
    (value,) = (each[16:] for each in environment if each.startswith(b"XDG_RUNTIME_DIR="))
    return Path(os.fsdecode(value), "mpwatch")


def test_an_attach_that_finds_a_hook_leaves_no_line(start: Start, tmp_path: Path) -> None:
    running = start("attach_plain", "idle")
    begun: list[tuple[ProcessId, str, str]] = []
    for _ in range(2):
        assert inject(running.process, timeout_s=20, begun=lambda *a: begun.append(a)).state == (
            "ready"
        )

    assert [each[0] for each in begun] == [running.process]
