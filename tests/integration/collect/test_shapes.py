"""Unusual systems: hidden processes, no control groups, forbidden calls, a read-only root, very
many processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify
from mpwatch.collect.process.py_spy import StackCollector
from mpwatch.collect.process.threads import THREADS_LIMIT
from mpwatch.model.ids import ProcessId
from tests.conftest import Start

pytestmark = pytest.mark.slow

OTHER_UID = 65534
IMPORTS = """
import ctypes, os, signal, time
from mpwatch.collect.host import orphans
from mpwatch.collect.job.jobs import find_jobs
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.exits import ExitWatch
from mpwatch.collect.process.identify import CannotWatch, identify
os.chdir("/")
os.setgroups([])
os.setresgid({uid}, {uid}, {uid})
os.setresuid({uid}, {uid}, {uid})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: who gave up rights may not be read
orphans.QUIET_S = -1.0

def child(then):
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        then()
        time.sleep(60)
        os._exit(0)
    return pid
"""
HIDDEN_PROC = 'mount -t proc -o hidepid=invisible proc /proc && exec "$@"'
"""Mounts a new procfs: a remount of the old one with options would change it for all."""


def unshared(script: str) -> list[str]:
    """Run a command in a mount namespace of its own, after a shell command."""
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def can_hide() -> bool:
    if os.geteuid() != 0:
        return False
    command = [*unshared(HIDDEN_PROC), "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not can_hide(), reason="needs namespaces of its own")


def as_nobody(script: str, code: str) -> list[str]:
    """The output lines of a program that runs as another user, after a shell command."""
    code = IMPORTS.format(uid=OTHER_UID) + textwrap.dedent(code)
    done = subprocess.run(
        [*unshared(script), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_namespaces
def test_with_hidepid_the_users_own_processes_are_read() -> None:
    lines = as_nobody(
        HIDDEN_PROC,
        """
        reader, writer = os.pipe()
        own = child(lambda: (os.setsid(), child(lambda: os.write(writer, b"x"))))
        os.read(reader, 1)
        root = identify(own)
        tree = TreeCollector(root)
        for _ in range(3):
            sample = tree.collect(ReadRequest.everything())
            print(len(sample.processes), [p.problems for p in sample.processes])
            print(sample.processes[0].fds is not None, sample.processes[0].maps is not None)
        exits = ExitWatch()
        exits.watch([root])
        os.killpg(own, signal.SIGKILL)
        print(*[ended.signal for ended in exits.poll(60.0)])
        """,
    )

    assert lines[:6] == ["2 [(), ()]", "True True"] * 3
    assert lines[6] == "9"


@needs_namespaces
def test_a_hidden_process_is_reported_as_missing_and_no_file_as_orphaned() -> None:
    lines = as_nobody(
        HIDDEN_PROC,
        """
        try:
            identify(os.getppid())
        except CannotWatch as error:
            print(type(error).__name__, error.exit_code)
        open(f"/dev/shm/torch_{os.getpid() + 4_190_000}_1_0", "w").close()
        found = orphans.find_leftovers()
        os.unlink(f"/dev/shm/torch_{os.getpid() + 4_190_000}_1_0")
        print([each for each in found.files if each.kind == "segment"], bool(found.problems))
        print(all(job.root.uid == os.getuid() for job in find_jobs()))
        """,
    )

    assert lines == ["NoSuchProcess 3", "[] True", "True"]


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    code = "print('ready', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_without_access_to_the_memory_of_others_everything_else_is_read(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a seccomp filter that refuses process_vm_readv, and /proc/PID/mem as well."""
    really = os.open

    def open_or_refuse(path: object, *arguments: int, **more: int) -> int:
        if str(path).endswith(("/mem", "/syscall", "/environ", "/maps", "/smaps_rollup")):
            raise PermissionError(1, "Operation not permitted")
        return really(path, *arguments, **more)  # type: ignore[arg-type]

    with sleeper:
        root = identify(sleeper.pid)
        monkeypatch.setattr(os, "open", open_or_refuse)
        sample = TreeCollector(root).collect(ReadRequest.everything())
        sleeper.kill()

    assert sample is not None
    (process,) = sample.processes
    assert process.threads is not None
    assert (process.threads[0].state, process.threads[0].waits_on) == ("S", None)
    assert process.fds is not None
    assert process.maps is None
    assert {problem.partition(":")[0] for problem in process.problems} == {
        "environment",
        "mappings",
        "memory",
    }


def test_py_spy_that_may_not_read_memory_is_a_problem_in_words(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    program = tmp_path / "py-spy"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'Error: process_vm_readv: Operation not permitted (os error 1)' >&2\n"
        "exit 1\n"
    )
    program.chmod(0o755)

    with sleeper:
        taken = StackCollector(program=str(program)).take(identify(sleeper.pid))
        sleeper.kill()

    assert taken.stacks == ()
    assert taken.problem is not None
    assert str(sleeper.pid) in taken.problem


UNSET_RUNTIME = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
NO_CGROUPS = 'umount --lazy --recursive /sys/fs/cgroup; exec "$@"'


@pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces of its own")
def test_without_control_groups_their_limits_are_unknown() -> None:
    lines = as_nobody(
        NO_CGROUPS,
        """
        own = child(lambda: None)
        sample = TreeCollector(identify(own)).collect(ReadRequest())
        os.kill(own, signal.SIGKILL)
        print(sample.host.cgroup)
        print([each for each in sample.host.problems if "control group" in each] != [])
        """,
    )

    assert lines == ["None", "True"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces of its own")
def test_on_a_read_only_root_a_job_is_read_and_the_reason_for_no_hook_is_shown() -> None:
    # No file systems are mounted over /tmp and the runtime directory, which are on the root.
    script = (
        "mount --bind / /mnt && mount -o remount,bind,ro /mnt && mount --rbind /proc /mnt/proc "
        '&& mount --rbind /dev /mnt/dev && exec chroot /mnt "$@"'
    )
    code = textwrap.dedent(
        """
        import json, os, subprocess, sys
        try:
            open(f"/tmp/mpwatch-test-{os.getpid()}", "w")
        except OSError as error:
            print(error.errno == 30)
        code = "import time; print('ready', flush=True); time.sleep(60)"
        mpwatch = [sys.executable, "-B", "-m", "mpwatch"]
        alone = [sys.executable, "-c", "print(6 * 7)"]
        hooked = subprocess.run([*mpwatch, "run", "--headless", *alone], capture_output=True)
        print(hooked.returncode, hooked.stdout, hooked.stderr)
        with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as job:
            job.stdout.readline()
            dump = [*mpwatch, "dump", str(job.pid), "--json"]
            done = subprocess.run(dump, capture_output=True)
            (process,) = json.loads(done.stdout)["processes"]
            print(done.returncode, process["threads"][0]["stack"] != [])
            done = subprocess.run([*dump, "--hook"], capture_output=True)
            (process,) = json.loads(done.stdout)["processes"]
            print(done.returncode, process["hook"]["state"], process["hook"]["reason"])
            print(job.poll())
            job.kill()
        """
    )
    done = subprocess.run(
        [*unshared(script), sys.executable, "-B", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**UNSET_RUNTIME, "PYTHONPATH": str(Path(__file__).parents[3])},
    )

    assert done.stdout.splitlines() == [
        "True",
        r"0 b'42\n' b''",
        "0 True",
        "0 absent nothing can be written to /tmp/mpwatch-0: Read-only file system",
        "None",
    ], done.stderr


def many(start: Start, what: str, count: int) -> ProcessId:
    """A process with so many children or threads."""
    program = start("many.py", what, str(count))
    program.wait_for("ready", 120.0)
    return identify(program.pid)


def test_a_thousand_processes_are_read_completely(start: Start) -> None:
    sample = TreeCollector(many(start, "children", 999)).collect(ReadRequest.everything())

    assert sample is not None
    assert len(sample.processes) == 1000
    assert [p.problems for p in sample.processes if p.problems] == []
    assert all(p.threads and p.fds and p.maps and p.memory for p in sample.processes)


def test_of_ten_thousand_threads_all_are_counted_and_a_bounded_number_is_read(
    start: Start,
) -> None:
    root = many(start, "threads", 9_999)
    sample = TreeCollector(root).collect(ReadRequest.everything())

    assert sample is not None
    (process,) = sample.processes
    assert process.thread_count == 10_000
    assert process.threads is not None
    assert len(process.threads) == THREADS_LIMIT
    assert process.threads[0].tid == root.pid
