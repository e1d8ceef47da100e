from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.collect.process import fds, memory
from mpwatch.collect.process.fds import HeldFile
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import inode_of
from tests.unit.collect.conftest import FakeProc

DEVICE = os.makedev(0, 0x1B)
MAPS = b"""\
555500000000-555500001000 r--p 00000000 08:01 11 /usr/bin/python3.11
7f0000000000-7f0000010000 rw-s 00000000 00:1b 4171 /dev/shm/torch_4242_707541426_0 (deleted)
7f0000010000-7f0000011000 rw-s 00000000 00:1b 4170 /dev/shm/sem.BmMhlW (deleted)
7f0000011000-7f0000012000 rw-s 00001000 00:1b 4171 /dev/shm/torch_4242_707541426_0 (deleted)
7f0000020000-7f0000021000 rw-s 00000000 00:1b 5000 /dev/shm/psm_12ab
7f0000030000-7f0000031000 r-xp 00000000 08:01 12 /x/torch/lib/libtorch_cpu.so
7f0000040000-7f0000041000 r-xp 00000000 08:01 13 /x/torch/lib/libgomp-a34b3233.so.1
7f0000042000-7f0000043000 r--p 00000000 08:01 13 /x/torch/lib/libgomp-a34b3233.so.1
7f0000044000-7f0000045000 r--p 00000000 00:1b 99 /dev/shm/private_copy
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
"""


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("pipe:[18174]", "pipe"),
        ("socket:[77]", "socket"),
        ("/dev/shm/torch_1_2_3 (deleted)", "torch"),
        ("/dev/shm/psm_1", "shm"),
        ("/memfd:x (deleted)", "shm"),
        ("/dev/null", "device"),
        ("/dev/nvidia0", "gpu"),
        ("/dev/nvidia-uvm", "gpu"),
        ("/home/u/log.txt", "file"),
        ("anon_inode:[eventpoll]", "epoll"),
        ("anon_inode:[eventfd]", "event"),
        ("anon_inode:[timerfd]", "timer"),
        ("anon_inode:[pidfd]", "other"),
    ],
)
def test_descriptors_differ_by_their_targets(target: str, kind: str) -> None:
    assert fds.kind_of(target) == kind


@pytest.mark.parametrize(
    ("target", "inode"),
    [("pipe:[18174]", 18174), ("socket:[7]", 7), ("/tmp/pipe:[3]", None), ("pipe:[x]", None)],
)
def test_only_pipes_and_sockets_have_their_inode_in_the_link(
    target: str, inode: int | None
) -> None:
    assert inode_of(target) == inode


def nowhere(_inode: int) -> None:
    return None


def test_links_are_listed_by_kind_in_order_and_cleaned(proc: FakeProc) -> None:
    proc.process(42)
    proc.fd(42, 10, "pipe:[18174]")
    proc.fd(42, 3, "/tmp/\x1b[2Jlog\nx")
    proc.fd(42, 4, "socket:[5]")

    found = fds.read_descriptors(str(proc), 42, nowhere)

    assert found.used == 3
    assert found.by_kind == {"file": 1, "socket": 1, "pipe": 1}
    assert [link.fd for link in found.links] == [3, 4, 10]
    assert found.links[0].target == "/tmp/log x"
    assert found.links[2].inode == 18174


def test_a_torch_descriptor_brings_the_size_and_identity_of_its_file() -> None:
    path = f"/dev/shm/torch_{os.getpid()}_1_0"
    before = fds.read_descriptors("/proc", os.getpid(), nowhere).held  # by tests run earlier
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.unlink(path)
    try:
        os.truncate(fd, 5000)
        now = fds.read_descriptors("/proc", os.getpid(), nowhere).held
        (held,) = [each for each in now if each.fd not in {old.fd for old in before}]
        stat = os.fstat(fd)
    finally:
        os.close(fd)

    assert held.fd == fd
    assert held.target == f"{path} (deleted)"
    assert held.segment == (stat.st_dev, stat.st_ino)
    assert held.stat.st_size == 5000


def test_the_ends_of_a_pipe_differ() -> None:
    read_end, write_end = os.pipe()
    try:
        links = {
            link.fd: link for link in fds.read_descriptors("/proc", os.getpid(), nowhere).links
        }
    finally:
        os.close(read_end)
        os.close(write_end)

    assert links[read_end].is_writable is False
    assert links[write_end].is_writable is True
    assert links[read_end].inode == links[write_end].inode


def test_a_file_that_is_written_has_its_identity(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    with path.open("wb") as file, path.open("rb") as reader:
        found = fds.read_descriptors(
            "/proc", os.getpid(), nowhere, device_of=fds.MountDevices("/proc")
        )
        links = {link.fd: link for link in found.links}
        written, read = links[file.fileno()], links[reader.fileno()]

    assert written.written is not None
    assert written.written.device is not None
    assert written.written.inode == path.stat().st_ino
    assert read.written is None


def test_a_table_of_mounts_is_read_again_once_it_is_old(proc: FakeProc) -> None:
    line = "{} 35 98:{} /root /runs rw,noatime master:1 - ext4 /dev/root rw\n"
    now_s = 10.0
    device_of = fds.MountDevices(str(proc), clock=lambda: now_s)
    assert device_of(42, 36) is None

    proc.write("42/mountinfo", line.format(36, 0) + line.format(37, 1))
    assert device_of(42, 36) == os.makedev(98, 0)
    assert device_of(42, 99) is None

    proc.write("42/mountinfo", line.format(37, 2))
    assert device_of(42, 37) == os.makedev(98, 1)
    now_s += fds.MOUNTS_S
    assert device_of(42, 37) == os.makedev(98, 2)
    assert device_of(42, 36) is None


def test_very_many_descriptors_leave_only_pipes_and_sockets(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fds, "LINKS_LIMIT", 4)
    proc.process(42)
    for number in range(6):
        proc.fd(42, number, "/tmp/file" if number % 2 else f"pipe:[{number}]")

    found = fds.read_descriptors(str(proc), 42, nowhere)

    assert found.used == 6
    assert found.by_kind == {"file": 3, "pipe": 3}
    assert {link.kind for link in found.links} == {"pipe"}


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        (
            "Max open files            1024                 4096                 files",
            fds.Limits(1024, 4096),
        ),
        (
            "Max open files            1024                 unlimited            files",
            fds.Limits(1024, None),
        ),
        (
            "Max cpu time  4  6  s",
            fds.Limits(cpu_s=6, others={"cpu time": 4}),
        ),
        ("Max cpu time  unlimited  unlimited  s", fds.Limits(others={"cpu time": None})),
        ("Max processes 1 2 processes", fds.Limits(others={"processes": 1})),
        (
            "Max locked memory         8388608              unlimited            bytes",
            fds.Limits(others={"locked memory": 8388608}),
        ),
        (
            "Max stack size            unlimited            unlimited            bytes",
            fds.Limits(others={"stack size": None}),
        ),
        # A dump of memory, and what the kernel no longer limits, harm no training.
        ("Max core file size  0  unlimited  bytes\nMax resident set  1  1  bytes", fds.Limits()),
    ],
)
def test_limits_are_those_of_the_process(proc: FakeProc, line: str, limits: fds.Limits) -> None:
    proc.process(42)
    proc.write("42/limits", line + "\n")

    assert fds.limits(str(proc), 42) == limits


def test_mappings_of_shared_memory_are_joined_by_inode() -> None:
    found = memory.parse_mappings(MAPS)

    assert found.used == 10
    assert found.torch_count == 2
    torch, *others = sorted(found.files, key=lambda file: file.segment.inode, reverse=True)[1:]
    assert torch.segment == SegmentId(DEVICE, 4171)
    assert torch.ranges == (
        (0x7F0000000000, 0x7F0000010000),
        (0x7F0000011000, 0x7F0000012000),
    )
    assert [file.segment.inode for file in others] == [4170]


def test_libraries_that_matter_are_named_once() -> None:
    found = memory.parse_mappings(MAPS)

    assert found.libraries == ("libgomp-a34b3233.so.1", "libtorch_cpu.so")
    assert found.has_torch


def test_mapped_files_that_are_no_libraries_are_named_once() -> None:
    row = b"7f%04d000000-7f%04d000100 r--s 00000000 08:01 77                         %s\n"
    paths = (
        b"/data/a b.f32",
        b"/data/a b.f32",
        b"/x/lib.so.1",
        b"/usr/a",
        b"/dev/shm/t",
        b"[heap]",
    )

    found = memory.parse_mappings(b"".join(row % (n, n, path) for n, path in enumerate(paths)))

    assert found.other_files == ("/data/a b.f32",)


def test_an_address_leads_to_the_file_it_lies_in() -> None:
    found = memory.parse_mappings(MAPS)

    hit = found.at(0x7F0000010010)
    assert hit is not None
    assert hit[0] == SegmentId(DEVICE, 4170)
    assert hit[2] == 0x10
    assert found.at(0x7F0000012000) is None


@pytest.mark.parametrize(
    ("path", "is_linked", "kind"),
    [
        ("/dev/shm/torch_1_2_3", False, "torch"),
        ("/dev/shm/torch_1_2_3", True, "torch-named"),
        ("/dev/shm/sem.mp-x", True, "semaphore"),
        ("/dev/shm/psm_1", True, "psm"),
        ("/dev/shm/nccl-x", True, "nccl"),
        ("/dev/shm/mine", True, "other"),
    ],
)
def test_segments_are_known_by_name(path: str, is_linked: bool, kind: str) -> None:
    assert memory.segment_kind(path, is_linked) == kind


def test_a_segment_held_and_mapped_is_one_with_size_and_creator(tmp_path: Path) -> None:
    path = tmp_path / "torch_7_1_0"
    path.write_bytes(b"x" * 5000)
    stat = path.stat()
    segment = SegmentId(stat.st_dev, stat.st_ino)
    held = [HeldFile(9, "/dev/shm/torch_7_1_0 (deleted)", segment, stat)]
    mapped = [memory.MappedFile(segment, "/dev/shm/torch_7_1_0 (deleted)", ((4096, 12288),))]

    (use,) = memory.join_segments(
        1, held, mapped, memory.ExtentCache(), lambda pid: pid + 1000, 5.0
    )

    assert use.segment == segment
    assert use.fds == (9,)
    assert use.ranges == ((4096, 12288),)
    assert use.size_bytes == 5000
    assert use.allocated_bytes == stat.st_blocks * 512
    assert use.creator_pid == 1007
    assert use.path == "/dev/shm/torch_7_1_0"
    assert use.is_linked  # the inode still has a name, although the path ends in "(deleted)"


def test_a_segment_that_cannot_be_examined_has_its_mapped_length(proc: FakeProc) -> None:
    mapped = [memory.MappedFile(SegmentId(1, 2), "/dev/shm/torch_7_1_0 (deleted)", ((0, 8192),))]

    (use,) = memory.join_segments(
        42, [], mapped, memory.ExtentCache(str(proc)), lambda pid: None, 5.0
    )

    assert use.size_bytes == 8192
    assert use.allocated_bytes is None
    assert use.creator_pid is None
    assert not use.is_linked


def test_a_named_segment_is_examined_by_name_only_if_it_is_the_same_file(proc: FakeProc) -> None:
    proc.write("42/root/dev/shm/torch_7_1_0", b"x" * 4096)
    stat = (proc.root / "42/root/dev/shm/torch_7_1_0").stat()
    same = memory.MappedFile(SegmentId(stat.st_dev, stat.st_ino), "/dev/shm/torch_7_1_0", ((0, 1),))
    other = same._replace(segment=SegmentId(stat.st_dev, stat.st_ino + 1))
    cache = memory.ExtentCache(str(proc))

    assert cache.examine(42, other, 1.0) is None
    found = cache.examine(42, same, 1.0)
    assert found is not None
    assert found.size_bytes == 4096


def test_facts_that_were_not_used_for_long_are_forgotten(tmp_path: Path) -> None:
    cache = memory.ExtentCache(str(tmp_path))
    cache.learn(SegmentId(1, 2), tmp_path.stat(), 5.0)
    gone = memory.MappedFile(SegmentId(1, 2), "/x", ((0, 1),))

    assert cache.examine(1, gone, 6.0) is not None
    cache.forget_before(10.0)
    assert cache.examine(1, gone, 11.0) is None
