"""`mpwatch diagnose --fail-on` as a check for scripts: its exit code in every case."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.integration.observe.commands import mpwatch, of_this_job

pytestmark = pytest.mark.slow

IDLE = "import time; print('ready', flush=True); time.sleep(60)"
ENDS_WHEN_TOLD = """
import faulthandler, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
signal.pause()
{end}
"""
CRASH, EXIT = "faulthandler._sigsegv()", "raise SystemExit(0)"
NOBODY = 65534


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def check(pid: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return mpwatch("diagnose", str(pid), "--for", "1", "--json", "--no-hook", *arguments)


def watch_its_end(start: Start, end: str, command: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a job, and end the job once it is observed; exit code and output."""
    job = start(python(ENDS_WHEN_TOLD.format(end=end)))
    job.wait_for("ready")
    watching = subprocess.Popen(
        [sys.executable, "-m", "mpwatch", command, str(job.pid), "--no-hook", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        while not has_pidfd_of(watching.pid, job.pid):
            assert watching.poll() is None, "it exited before it watched the job"
            time.sleep(0.05)
        os.kill(job.pid, signal.SIGUSR1)
        out, _ = watching.communicate(timeout=90)
    finally:
        watching.kill()
        watching.wait()
    return watching.returncode, out


def has_pidfd_of(pid: int, target: int) -> bool:
    """Whether a process has a pidfd (pidfd_open(2)) of another, which shows its exit."""
    for info in Path(f"/proc/{pid}/fdinfo").glob("*"):
        with contextlib.suppress(OSError):
            if f"\nPid:\t{target}\n" in info.read_text():
                return True
    return False


@pytest.mark.parametrize("threshold", ["never", "info", "warning", "critical"])
def test_a_job_without_a_finding_passes(start: Start, threshold: str) -> None:
    job = start(python(IDLE))
    job.wait_for("ready")

    done = check(job.pid, "--fail-on", threshold)

    findings = json.loads(done.stdout)["findings"]
    assert of_this_job(findings) == []
    assert done.returncode == (threshold == "info" and bool(findings)), done.stderr


@pytest.mark.parametrize(
    ("threshold", "code"), [("never", 0), ("warning", 1), ("critical", 1), ("info", 1)]
)
def test_a_job_that_crashes_while_watched_fails_from_its_severity_on(
    start: Start, threshold: str, code: int
) -> None:
    found, out = watch_its_end(
        start, CRASH, "diagnose", "--for", "60", "--json", "--fail-on", threshold
    )

    assert found == code, out
    assert "worker-segfault" in {each["rule"] for each in json.loads(out)["findings"]}


def test_a_job_that_exits_with_0_passes_and_the_watch_ends_with_it(start: Start) -> None:
    # If the exit were not noticed, the command would take longer than the limit.
    code, out = watch_its_end(
        start, EXIT, "diagnose", "--for", "600", "--json", "--fail-on", "info"
    )

    document = json.loads(out)
    assert document["ended"] == []
    assert code == bool(document["findings"]), out
    assert of_this_job(document["findings"]) == []


def test_a_missing_process_does_not_pass() -> None:
    done = check(2147483000, "--fail-on", "warning")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("mpwatch: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_process_of_another_user_does_not_pass(start: Start) -> None:
    job = start(python(IDLE))
    job.wait_for("ready")
    # The first call imports all modules: other users may not be able to read the interpreter's
    # files.
    code = f"""
import contextlib, io, os, sys
import mpwatch.observe.sources.oneshot
from mpwatch.cli import main
with contextlib.redirect_stderr(io.StringIO()):
    main(["diagnose", "2147483000"])
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(main(["diagnose", "{job.pid}", "--for", "1", "--fail-on", "warning"]))
"""
    done = subprocess.run(
        python(code),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd="/",
        env={**os.environ, "XDG_CONFIG_HOME": "/"},  # that of the tests is for their user only
    )

    assert (done.returncode, done.stdout) == (4, ""), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_does_not_pass(start: Start, number: int) -> None:
    job = start(python(IDLE))
    job.wait_for("ready")
    command = [sys.executable, "-X", "importtime", "-m", "mpwatch", "diagnose", str(job.pid)]
    checking = subprocess.Popen(
        [*command, "--for", "100", "--no-hook"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert checking.stderr is not None
    # The collector of stacks exists once the watch has begun.
    while "mpwatch.observe.sources.oneshot" not in checking.stderr.readline():
        assert checking.poll() is None
    checking.send_signal(number)
    out, err = checking.communicate(timeout=60)

    assert out == ""
    assert "Traceback" not in err
    assert checking.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)


def test_a_recording_is_checked_like_a_job(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "job.mpw"
    assert watch_its_end(start, CRASH, "record", "-o", str(file))[0] == 0

    assert mpwatch("diagnose", file, "--fail-on", "critical").returncode == 1
    assert mpwatch("diagnose", file).returncode == 0
    assert mpwatch("diagnose", tmp_path / "none", "--fail-on", "critical").returncode == 2
