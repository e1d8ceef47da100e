"""A runtime directory on a disk that is frozen or full: the job must not notice.

Only root can make, mount and freeze a disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.attach.inject import inject
from mpwatch.collect.hook.left_files import read_hook_files
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire
from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport.process_files import SAVE_EVERY_S
from mpwatch.hook.transport.runtime_dir import (
    is_directory_frozen,
    is_link_frozen,
    make_link,
    sweep,
)
from tests import procfs
from tests.builders.disk import MIBS, NEEDS, Disk, mounted_disk
from tests.conftest import PROGRAMS, kill_group
from tests.integration import on_demand
from tests.integration.hook.client import Client, wait_for_sockets
from tests.procfs import eventually

TICKS = 400
FROZEN_TICKS = 260
"""At 20 ms each: longer than the hook's thread waits between two copies of its ring."""
EXIT_S = 60.0

pytestmark = [pytest.mark.slow, *NEEDS]


@pytest.fixture(params=on_demand.cases(MIBS, ["ext4"]))
def disk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disk]:
    kind = request.param
    if not shutil.which(f"mkfs.{kind}"):
        pytest.skip(f"needs mkfs.{kind} (xfsprogs, btrfs-progs)")
    with mounted_disk(tmp_path_factory.mktemp("disk"), kind=kind) as disk:
        yield disk


class Job:
    """The program, with the output so far."""

    def __init__(self, mode: str, disk: Disk) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "hook_disk.py"), mode, str(TICKS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(disk.folder / "run")},
            start_new_session=True,
        )
        self.lines: list[str] = []

    def wait_for_tick(self, number: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith(f"tick {number} "):
                return
        pytest.fail(f"it ended before tick {number}: {self.lines[-5:]}")

    def finish(self) -> tuple[int, list[str]]:
        assert self.process.stdout is not None
        self.lines += self.process.stdout
        return self.process.wait(60), self.lines

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process.pid)
        self.process.communicate()


@contextlib.contextmanager
def exiting_job(mode: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A job of nine processes that exit once a line arrives."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "hook_disk_exits.py"), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # a child writes its traceback while its parent prints
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        start_new_session=True,
    ) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n"
            yield job
        finally:
            kill_group(job.pid)


def end(job: subprocess.Popen[str]) -> tuple[int, list[str]] | None:
    """Exit code and lines (stdout, stderr) of a job that is told to exit; `None` if it does not."""
    try:
        output, errors = job.communicate("exit\n", timeout=EXIT_S)
    except subprocess.TimeoutExpired:
        return None
    return job.returncode, output.splitlines() + errors.splitlines()


@pytest.fixture(scope="module")
def bare_end(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    """The end of that job without the hook."""
    with exiting_job("bare", tmp_path_factory.mktemp("bare")) as job:
        ended = end(job)
    assert ended is not None
    return ended


def has_thread_of_hook(pid: int, among: int) -> bool:
    """Whether a process has so many threads, and one of them is the hook's."""
    names = [path.read_bytes().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    return wire.THREAD_NAME in names and len(names) == among


def bare_output(disk: Disk) -> tuple[int, list[str]]:
    with Job("bare", disk) as job:
        return job.finish()


def is_blocked(disk: Disk) -> subprocess.Popen[bytes]:
    """A process that writes to the disk: it ends once that is thawed, and not before."""
    return subprocess.Popen(["touch", str(disk.folder / "probe")])


def test_a_job_continues_while_the_disk_of_its_runtime_directory_is_frozen(disk: Disk) -> None:
    with Job("hook", disk) as job:
        job.wait_for_tick(50)
        assert len(wait_for_sockets(disk.folder / "run", 2)) == 2
        with disk.frozen():
            probe = is_blocked(disk)
            job.wait_for_tick(50 + FROZEN_TICKS)
            assert probe.poll() is None, "the disk was not frozen"
        assert probe.wait(30) == 0
        ended = job.finish()

    assert ended == bare_output(disk)
    assert os.listdir(disk.folder / "run" / "mpwatch") == []


def test_processes_exit_while_the_disk_of_their_runtime_directory_is_frozen(
    disk: Disk, bare_end: tuple[int, list[str]]
) -> None:
    directory = disk.folder / "run" / "mpwatch"
    with exiting_job("hook", directory.parent) as job:
        paths = wait_for_sockets(directory.parent, 9)
        with disk.frozen():
            time.sleep(SAVE_EVERY_S + 0.5)  # each of them has had something to write
            with Client(paths[min(paths.keys() - {job.pid})]) as client:
                client.ask("detach")
                with pytest.raises(EOFError):
                    client.read_to_the_end()
            assert end(job) == bare_end

    assert len(list(directory.glob("*.sock"))) == 9
    for _ in sweep(System(), str(directory)):
        continue
    assert {path.suffix for path in directory.iterdir()} == {".ring", ".notes"}


def test_processes_start_and_exit_while_the_disk_of_their_runtime_directory_is_frozen(
    disk: Disk, bare_end: tuple[int, list[str]]
) -> None:
    with disk.frozen(), exiting_job("hook", disk.folder / "run") as job:
        assert end(job) == bare_end

    assert os.listdir(disk.folder / "run") == []


@pytest.mark.usefixtures("ptrace_allowed")
def test_a_pending_injection_that_arrives_while_the_disk_is_frozen_does_not_keep_the_process(
    disk: Disk,
) -> None:
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "attach_queue.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(disk.folder / "run")},
        start_new_session=True,
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "ready\n"
            assert eventually(lambda: procfs.call(job.pid) is not None)
            assert inject(stat_of(job.pid).process, timeout_s=0.1).state == "pending"
            with disk.frozen():
                print("item", file=job.stdin, flush=True)
                assert job.stdout.readline() == "got item\n"
                # Of its two threads, the one that has loaded the hook and answers has ended.
                assert eventually(lambda: has_thread_of_hook(job.pid, among=4), EXIT_S)
                job.terminate()
                assert job.wait(EXIT_S) == -signal.SIGTERM
        finally:
            kill_group(job.pid)


@pytest.mark.parametrize("inode_bytes", [256, 128])
def test_whether_a_disk_is_frozen_is_seen_also_where_times_are_whole_seconds(
    tmp_path_factory: pytest.TempPathFactory, inode_bytes: int
) -> None:
    with mounted_disk(tmp_path_factory.mktemp("disk"), "-I", str(inode_bytes)) as disk:
        system, link = System(), str(disk.run / f"1-2{wire.CHECK_SUFFIX}")
        make_link(system, link, b"ext4")
        assert os.path.islink(link)
        for _ in range(25):  # over two seconds
            assert is_link_frozen(system, link) is False
            assert not is_directory_frozen(system, str(disk.run), b"ext4")
            time.sleep(0.1)
        with disk.frozen():
            time.sleep(1.1)
            assert is_link_frozen(system, link)
        assert is_link_frozen(system, link) is False


def test_attaching_while_the_disk_is_frozen_does_not_wait(disk: Disk) -> None:
    with contextlib.ExitStack() as stack:
        with disk.frozen():
            probe = is_blocked(disk)
            job = stack.enter_context(Job("hook", disk))
            job.wait_for_tick(TICKS // 2 + 10)
            assert probe.poll() is None, "the disk was not frozen"
        assert probe.wait(30) == 0
        paths = wait_for_sockets(disk.folder / "run", 3)
        with Client(paths[job.process.pid]) as client:
            hello = client.hello()
        ended = job.finish()

    assert hello["problems"] == []
    assert ended == bare_output(disk)


def has_room_for_a_socket(disk: Disk) -> bool:
    """Whether a full disk takes a file without contents: xfs allots its inodes as it needs them."""
    try:
        os.mknod(disk.folder / "socket", stat.S_IFSOCK)
    except OSError:
        return False
    return True


def test_a_job_on_a_full_disk_is_as_without_the_hook_and_its_records_can_be_had(
    disk: Disk,
) -> None:
    (disk.folder / "run" / "mpwatch").mkdir(mode=0o700)
    with open(disk.folder / "filler", "wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4096))
    with Job("hook", disk) as job:
        job.wait_for_tick(50)
        if has_room_for_a_socket(disk):
            paths = wait_for_sockets(disk.folder / "run", 2)
            with Client(paths[job.process.pid]) as client:
                hello = client.hello()
                while not client.records:
                    client.frame()
            assert hello["problems"] == ["copy of the ring: No space left on device"]
        (disk.folder / "filler").unlink()
        ended = job.finish()

    assert ended == bare_output(disk)
    assert os.listdir(disk.folder / "run" / "mpwatch") == []


def test_a_process_killed_on_a_disk_leaves_a_copy_that_says_how_old_it_is(disk: Disk) -> None:
    with Job("hook", disk) as job:
        job.wait_for_tick(TICKS - 10)
        job.process.kill()
        killed_ns = time.monotonic_ns()
    all_files = read_hook_files([str(disk.folder / "run" / "mpwatch")])
    (files,) = [files for files in all_files if files.process.pid == job.process.pid]

    assert files.events
    assert files.events[-1].at_ns <= files.copied_ns < killed_ns
    assert any(note.kind == "exception" for note in files.notes)
