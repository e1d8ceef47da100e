"""The main job: real trainings seen through the real command line."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mpwatch.model.samples import TreeSample
from mpwatch.observe.recording.file import NotARecording
from tests import procfs
from tests.builders.recordings import read_recording
from tests.conftest import Start
from tests.integration.on_demand import cases

pytestmark = pytest.mark.slow

METHODS = ("fork", "spawn", "forkserver")

Document = dict[str, Any]


def mpwatch(*arguments: str, code: int = 0) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def dump(pid: int, *arguments: str) -> Document:
    """The job as JSON."""
    document: Document = json.loads(mpwatch("dump", str(pid), "--json", *arguments))
    return document


def dump_with_hooks(pid: int) -> Document:
    """The job as JSON, once no hook was short of cpu; after a minute, as it is then."""
    deadline_s = time.monotonic() + 60
    while True:
        document = dump(pid)
        states = {process["hook"]["state"] for process in document["processes"]}
        if "silent" not in states or time.monotonic() > deadline_s:
            return document


def by_role(document: Document, role: str) -> list[Document]:
    """The processes with a role."""
    return [process for process in document["processes"] if process["role"] == role]


def functions(process: Document) -> set[str]:
    """Every function on any stack of a process."""
    return {frame["function"] for thread in process["threads"] for frame in thread["stack"]}


def open_files(pid: int) -> int:
    """Descriptors of a process, counted by hand."""
    return len(procfs.links(pid))


@pytest.mark.parametrize("method", cases(METHODS, ["fork", "forkserver"]))
def test_an_unprepared_job_is_shown_completely_from_outside(start: Start, method: str) -> None:
    job = start("loader.py", "2", method)
    job.wait_for("ready")

    seen = dump(job.pid, "--no-hook")

    main, *_ = by_role(seen, "main")
    workers = by_role(seen, "loader-worker")
    assert main["pid"] == seen["root"] == job.pid
    assert len(workers) == 2
    assert all("_worker_loop" in functions(worker) for worker in workers), (
        [worker["threads"] for worker in workers],
        seen["problems"],
    )
    assert all("main" not in functions(worker) for worker in workers if method == "fork")
    assert {worker["loader"]["worker_id"] for worker in workers} == {0, 1}
    assert all(worker["fds"]["soft_limit"] for worker in workers)
    assert abs(main["fds"]["used"] - open_files(job.pid)) <= 8
    assert all(process["maps"]["used"] > 100 for process in (main, *workers))
    assert {process["hook"]["state"] for process in seen["processes"]} == {"absent"}
    torch = [segment for segment in seen["segments"] if segment["kind"] == "torch"]
    assert torch
    assert {segment["creator_pid"] for segment in torch} <= {worker["pid"] for worker in workers}
    roles = {process["role"] for process in seen["processes"]}
    assert roles <= {"main", "loader-worker", "resource-tracker", "forkserver"}
    assert ("forkserver" in roles) == (method == "forkserver")


@pytest.mark.parametrize("method", cases(METHODS, ["fork", "spawn"]))
def test_a_job_with_the_hook_shows_it_ready_everywhere_with_a_flow_from_each_worker(
    start: Start, method: str
) -> None:
    job = start("loader.py", "2", method, "--hook")
    job.wait_for("ready")

    seen = dump_with_hooks(job.pid)

    main, *_ = by_role(seen, "main")
    workers = by_role(seen, "loader-worker")
    for process in (main, *workers):
        assert process["hook"]["state"] == "ready", process["hook"]
        assert process["hook"]["events"] > 0
    flows = {flow["sender_pid"]: flow for flow in seen["flows"] if flow["receiver_pid"] == job.pid}
    assert set(flows) >= {worker["pid"] for worker in workers}
    for worker in workers:
        flow = flows[worker["pid"]]
        assert flow["tensors"] > 0
        # Two tensors a batch: 4 pictures of 3 x 32 x 32 floats and 4 indices of 8 bytes.
        assert flow["bytes"] / flow["tensors"] == pytest.approx((4 * 12288 + 32) / 2, rel=0.2)


def test_killing_the_observer_at_any_moment_changes_nothing_in_the_job(
    start: Start, tmp_path: Path
) -> None:
    job = start("loader.py", "2", "--hook", "--batches", "300")
    job.wait_for("ready")
    for milliseconds in (50, 200, 350, 500, 650, 800, 950):
        observer = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mpwatch",
                "record",
                str(job.pid),
                "-o",
                f"{tmp_path}/{milliseconds}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            observer.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            observer.send_signal(signal.SIGKILL)
            observer.wait()

    assert job.wait() == 0
    expected = sum(sum(range(4 * n, 4 * n + 4)) + 4 for n in range(301))
    assert job.lines[-1] == f"sum {float(expected)}"


def test_a_program_run_headless_is_recorded_and_keeps_its_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import sys, time\nprint('hello', sys.argv[1:])\ntime.sleep(1)\nsys.exit(7)\n"
    )
    file = tmp_path / "run.mpw"

    printed = mpwatch("run", "--headless", "--record", str(file), str(script), "--x", code=7)

    assert printed == "hello ['--x']\n"
    seen = json.loads(mpwatch("diagnose", str(file), "--json"))
    assert [each for each in seen["findings"] if each["severity"] != "info"] == []


def test_a_program_run_with_a_recording_keeps_its_limits(tmp_path: Path) -> None:
    script = tmp_path / "limits.py"
    script.write_text("import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\n")

    printed = mpwatch("run", "--headless", "--record", str(tmp_path / "r"), str(script))

    assert printed == f"{resource.getrlimit(resource.RLIMIT_NOFILE)}\n"


def test_an_exit_is_diagnosed_from_a_recording(start: Start, tmp_path: Path) -> None:
    job = start("loader.py", "2")
    job.wait_for("ready")
    file = tmp_path / "death.mpw"
    recorder = start([sys.executable, "-m", "mpwatch", "record", str(job.pid), "-o", str(file)])
    worker = by_role(dump(job.pid, "--no-stacks"), "loader-worker")[0]
    wait_until_recorded(file, worker["pid"])
    os.kill(worker["pid"], signal.SIGSEGV)
    job.wait()
    recorder.wait()

    seen = json.loads(mpwatch("diagnose", str(file), "--json", "--fail-on", "warning", code=1))

    assert "worker-segfault" in {finding["rule"] for finding in seen["findings"]}


def wait_until_recorded(file: Path, pid: int) -> None:
    """Wait until a recording that is being written knows a process."""

    def is_recorded() -> bool:
        with contextlib.suppress(FileNotFoundError, NotARecording):
            trees = [each for each in read_recording(str(file)) if isinstance(each, TreeSample)]
            return any(sample.process.pid == pid for tree in trees for sample in tree.processes)
        return False

    assert procfs.eventually(is_recorded), f"{pid} was not recorded within a minute"


def test_a_worker_that_crashed_before_the_first_reading_is_named(start: Start) -> None:
    job = start("loader.py", "2")
    job.wait_for("ready")
    worker = by_role(dump(job.pid, "--no-stacks"), "loader-worker")[0]["pid"]
    os.kill(job.pid, signal.SIGSTOP)  # it is not reaped, so it stays a zombie
    os.kill(worker, signal.SIGSEGV)

    seen = dump(job.pid, "--no-stacks")

    (dead,) = [each for each in seen["processes"] if each["pid"] == worker]
    (crash,) = [each for each in seen["findings"] if each["rule"] == "worker-segfault"]
    assert (dead["role"], dead["ended"]["signal"]) == ("loader-worker", signal.SIGSEGV)
    assert "signal 11 (SIGSEGV)" in crash["summary"]


@pytest.mark.parametrize(
    ("pid", "code"),
    [("2147483000", 3), pytest.param(str(os.getpid()), 0, id="this process"), ("0", 2), ("x", 2)],
)
def test_a_pid_that_cannot_be_watched_gets_one_sentence_and_its_code(pid: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "dump", pid, "--json", "--no-stacks"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert (done.stdout == "") == (code != 0)


def test_a_process_that_is_not_python_a_thread_and_a_zombie_are_refused(start: Start) -> None:
    sleeper = start(["sleep", "60"])
    threads = start(
        [
            sys.executable,
            "-c",
            "import threading, time; t = threading.Thread(target=time.sleep, args=(60,), "
            "daemon=True); t.start(); print('ready', t.native_id, flush=True); time.sleep(60)",
        ]
    )
    thread = threads.wait_for("ready").split()[1]
    parent = start(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', '']); "
            "import os; os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT); "
            "print('ready', p.pid, flush=True); time.sleep(60)",
        ]
    )
    zombie = parent.wait_for("ready").split()[1]

    for pid, code in ((str(sleeper.pid), 5), (thread, 3), (zombie, 3)):
        done = subprocess.run(
            [sys.executable, "-m", "mpwatch", "dump", pid],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, (pid, done.stderr)
        assert done.stderr.count("\n") <= 2
        assert done.stdout == ""
