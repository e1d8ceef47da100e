"""Whether a disk is frozen, on file systems that store the time of access, or do not."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport import runtime_dir
from mpwatch.hook.transport.notes import Notes, Problems
from mpwatch.hook.transport.process_files import Files, Identity
from mpwatch.hook.transport.ring import Ring
from mpwatch.hook.transport.runtime_dir import is_directory_frozen, is_link_frozen, make_link
from tests.builders.replaced_os import Os

SECOND_NS = 10**9
DAY_NS = 86_400 * SECOND_NS


class Disk:
    """A directory whose times of access the test decides, as the kernel does on a disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.takes_writes = True
        self.step_ns = 1
        """The file system stores times as multiples of this."""
        self.flags = 0
        self.accessed_ns: dict[str, int] = {}
        self.accesses: list[str] = []
        self.system = System()
        self.system.os = Os(
            lstat=self.lstat,
            readlink=self.access,
            scandir=self.scandir,
            statvfs=lambda path: SimpleNamespace(f_flag=self.flags),
            utime=self.utime,
        )

    def lstat(self, path: str) -> Any:
        found = os.lstat(path)
        accessed_ns = self.accessed_ns.get(path, found.st_mtime_ns)
        return SimpleNamespace(
            st_atime_ns=accessed_ns // self.step_ns * self.step_ns,
            st_mtime_ns=found.st_mtime_ns // self.step_ns * self.step_ns,
            st_mode=found.st_mode,
            st_uid=found.st_uid,
            st_ctime_ns=0,
        )

    def access(self, path: str) -> None:
        """Read a file, on a mount with `relatime`."""
        self.accesses.append(path)
        found = self.lstat(path)
        if self.takes_writes and found.st_atime_ns <= found.st_mtime_ns:
            self.accessed_ns[path] = time.time_ns()

    def scandir(self, path: str) -> Any:
        self.access(path)
        return os.scandir(path)

    def utime(self, path: str, ns: tuple[int, int], **options: Any) -> None:
        os.utime(path, ns=ns, **options)
        self.accessed_ns[path] = ns[0]

    def age(self) -> None:
        """Let a day pass since each access."""
        for path in self.accessed_ns:
            self.accessed_ns[path] -= DAY_NS

    @property
    def link(self) -> str:
        return f"{self.folder}/7-9.check"

    def make_link(self, kind: bytes = b"ext4") -> None:
        make_link(self.system, self.link, kind)

    def is_link_frozen(self) -> bool | None:
        return is_link_frozen(self.system, self.link)

    def is_directory_frozen(self, name: str = "", kind: bytes = b"ext4") -> bool:
        return is_directory_frozen(self.system, f"{self.folder}{name}", kind)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_disk_that_drops_the_time_of_access_is_frozen_until_it_writes_it_again(
    disk: Disk,
) -> None:
    disk.make_link()
    assert [disk.is_link_frozen() for _ in range(3)] == [False, False, False]
    disk.age()
    disk.takes_writes = False
    assert [disk.is_link_frozen() for _ in range(3)] == [True, True, True]
    disk.takes_writes = True
    assert not disk.is_link_frozen()


def test_two_accesses_within_a_tick_of_the_clock_are_no_frozen_disk(disk: Disk) -> None:
    disk.make_link()
    assert not disk.is_link_frozen()
    disk.takes_writes = False  # the second has the time of the first
    assert not disk.is_link_frozen()


def test_where_times_are_whole_seconds_two_accesses_within_one_are_no_frozen_disk(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.step_ns = SECOND_NS
    disk.make_link()
    half_past_ns = time.time_ns() // SECOND_NS * SECOND_NS + SECOND_NS // 2
    monkeypatch.setattr(time, "time_ns", lambda: half_past_ns)
    monkeypatch.setattr(disk.system, "time_ns", lambda: half_past_ns)
    assert [disk.is_link_frozen() for _ in range(3)] == [False, False, False]
    disk.takes_writes = False
    assert not disk.is_link_frozen()
    disk.age()
    assert disk.is_link_frozen()


@pytest.mark.parametrize("flag", [os.ST_NOATIME, os.ST_RDONLY])
def test_a_mount_without_times_of_access_counts_as_not_frozen(disk: Disk, flag: int) -> None:
    disk.make_link()
    disk.age()
    disk.takes_writes = False
    disk.flags = flag

    assert not disk.is_link_frozen()


@pytest.mark.parametrize(("kind", "takes_writes"), [(b"ext4", False), (b"nfs4", True)])
def test_a_file_system_that_does_not_store_times_of_access_gets_no_link(
    disk: Disk, kind: bytes, takes_writes: bool
) -> None:
    disk.takes_writes = takes_writes
    disk.make_link(kind)

    assert os.listdir(disk.folder) == []
    assert disk.is_link_frozen() is None


def test_a_link_that_was_made_before_an_exec_is_used_again(disk: Disk) -> None:
    disk.make_link()
    disk.make_link()
    disk.age()
    disk.takes_writes = False

    assert disk.is_link_frozen()


def test_links_that_cannot_be_made_leave_the_disk_unknown(disk: Disk) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    disk.system.os.replaced["symlink"] = refuse
    disk.make_link()

    assert disk.is_link_frozen() is None


@pytest.mark.parametrize("name", ["", "/not-there-yet"])
@pytest.mark.parametrize("kind", [b"ext4", b"overlay"])
def test_without_a_link_the_directory_or_the_one_above_tells(
    disk: Disk, name: str, kind: bytes
) -> None:
    os.utime(disk.folder, (0, 0))
    disk.takes_writes = False

    # In a container the directory may be of the image, whose times are never written.
    assert disk.is_directory_frozen(name, kind) is (kind == b"ext4")
    disk.takes_writes = True
    assert not disk.is_directory_frozen(name, kind)


def test_a_directory_that_was_read_since_its_last_change_tells_nothing(disk: Disk) -> None:
    os.utime(disk.folder, (0, 0))
    disk.access(str(disk.folder))
    disk.takes_writes = False

    assert not disk.is_directory_frozen()


def test_a_thread_that_has_nothing_to_write_leaves_the_disk_alone(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, ring = Notes(disk.system), Ring(disk.system, 8)
    files = Files(disk.system, Identity(disk.system, "run", None), ring, notes, Problems())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(disk.folder))
    monkeypatch.setattr(runtime_dir, "IN_MEMORY", ())
    assert not files.open(lambda _: None, may_block=False)
    assert files.open(lambda _: None, may_block=True)
    files.work(lambda: False)  # a search for files of dead processes, and the first copy
    disk.accesses.clear()

    for _ in range(5):
        files.work(lambda: False)
    assert disk.accesses == []
    notes.add("exit", {})
    files.work(lambda: False)
    assert disk.accesses != []


def test_a_disk_that_is_frozen_as_soon_as_there_is_a_socket_is_seen_to_be(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on an observer can detach the hook, and the process can exit."""
    ring, notes = Ring(disk.system, 8), Notes(disk.system)
    files = Files(disk.system, Identity(disk.system, "run", None), ring, notes, Problems())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(disk.folder))
    monkeypatch.setattr(runtime_dir, "mount_of", lambda *_: (b"ext4", disk.folder.stat().st_dev))
    seen: list[bool] = []

    def listen(_path: str) -> None:
        disk.age()
        disk.takes_writes = False
        seen.append(files.is_frozen())

    assert not files.open(listen, may_block=False)
    assert files.open(listen, may_block=True)
    assert seen == [True]


@pytest.mark.parametrize(("kind", "is_searched"), [(b"ext4", True), (b"nfs4", False)])
def test_files_of_dead_processes_are_not_searched_for_where_other_machines_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: bytes, is_searched: bool
) -> None:
    system = System()
    identity, ring = Identity(system, "run", None), Ring(system, 8)
    files = Files(system, identity, ring, Notes(system), Problems())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(runtime_dir, "mount_of", lambda *_: (kind, 0))

    assert files.open(lambda _: None, may_block=True)
    assert files.sweeper.is_due() is is_searched


def test_a_real_file_system_is_not_frozen(tmp_path: Path) -> None:
    for _ in range(3):
        make_link(System(), f"{tmp_path}/link", b"ext4")
        assert not is_link_frozen(System(), f"{tmp_path}/link")
        assert not is_directory_frozen(System(), str(tmp_path), b"ext4")
