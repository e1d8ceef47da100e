from __future__ import annotations

import os
import struct
from typing import get_args

import pytest

from mpwatch.collect.process import procfs, syscall_waits
from mpwatch.collect.process.memory import Mappings, parse_mappings
from mpwatch.collect.process.syscall_waits import BlockedCall, WaitResolver, parse_syscall
from mpwatch.collect.process.threads import ThreadReading, read_threads, without_unsure
from mpwatch.model.account import SYNC_CALLS
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import ThreadSample, WaitedOn, WaitKind
from tests.unit.collect.conftest import FakeProc

SEM = b"00010000-00011000 rw-s 00000000 00:1b 4170 /dev/shm/sem.BmMhlW (deleted)\n"
X86 = syscall_waits.names("x86_64")


class Memory:
    """The target's memory, as a sparse file."""

    def __init__(self, proc: FakeProc, pid: int) -> None:
        self.path = proc.root / f"{pid}/mem"
        self.path.write_bytes(b"")

    def put(self, address: int, data: bytes) -> int:
        with self.path.open("r+b") as file:
            file.seek(address)
            file.write(data)
        return address


def resolver(
    proc: FakeProc, names: dict[int, str] = X86, mappings: Mappings | None = None
) -> WaitResolver:
    return WaitResolver(
        str(proc), 10, names, lambda: mappings, lambda pid: pid + 1000, now_s=50.0, wall_s=2e9
    )


def waits(proc: FakeProc, number: int, *arguments: int, state: str = "S") -> WaitedOn | None:
    return resolver(proc).resolve(BlockedCall(number, arguments), state, None)


@pytest.mark.parametrize(
    ("line", "call"),
    [
        (b"running\n", None),
        (b"", None),
        (b"nonsense 1 2\n", None),
        (b"-1 0x7ffc 0x7f00\n", BlockedCall(-1)),
        (b"0 0x3 0x7f 0x4 0x0 0x0 0x0 0x7ffe 0x7fff\n", BlockedCall(0, (3, 0x7F, 4, 0, 0, 0))),
    ],
)
def test_the_line_of_the_kernel_is_parsed(line: bytes, call: BlockedCall | None) -> None:
    assert parse_syscall(line) == call


def test_a_read_of_a_pipe_names_the_pipe_and_what_is_in_it(proc: FakeProc) -> None:
    proc.process(10)
    proc.fd(10, 3, "pipe:[18174]")

    found = waits(proc, 0, 3, 0x1000, 4)

    assert found is not None
    assert (found.kind, found.call, found.targets, found.fds) == (
        "pipe-read",
        "read",
        ("pipe:[18174]",),
        (3,),
    )


@pytest.mark.parametrize(
    ("number", "target", "kind"),
    [
        (1, "pipe:[5]", "pipe-write"),
        (20, "pipe:[5]", "pipe-write"),
        (0, "socket:[5]", "socket-read"),
        (47, "socket:[5]", "socket-read"),
        (46, "socket:[5]", "socket-write"),
        (288, "socket:[5]", "accept"),
        (42, "socket:[5]", "socket-write"),
        (0, "/dev/pts/3", "unknown"),
    ],
)
def test_transfers_differ_by_direction_and_target(
    proc: FakeProc, number: int, target: str, kind: str
) -> None:
    proc.process(10)
    proc.fd(10, 7, target)

    found = waits(proc, number, 7)

    assert found is not None
    assert (found.kind, found.targets) == (kind, (target,))


def test_a_closed_descriptor_is_still_named(proc: FakeProc) -> None:
    proc.process(10)

    found = waits(proc, 0, 9)

    assert found is not None
    assert found.targets == ("fd 9",)


def test_a_shared_futex_in_a_mapped_file_is_a_semaphore_with_its_value(proc: FakeProc) -> None:
    proc.process(10)
    address = Memory(proc, 10).put(0x10010, struct.pack("<I", 3))
    call = BlockedCall(202, (address, 9, 0, 0))

    found = resolver(proc, mappings=parse_mappings(SEM)).resolve(call, "S", None)

    assert found is not None
    segment = SegmentId(os.makedev(0, 0x1B), 4170)
    assert (found.kind, found.segment, found.value) == ("semaphore", segment, 3)
    assert found.targets == (f"sem {segment}",)


def test_a_private_futex_never_asks_for_the_mappings(proc: FakeProc) -> None:
    proc.process(10)
    asked: list[bool] = []

    def mappings() -> Mappings | None:
        asked.append(True)
        return None

    each = WaitResolver(str(proc), 10, X86, mappings, lambda pid: pid, 0.0, 0.0)
    private = each.resolve(BlockedCall(202, (0x1000, 128, 0, 0)), "S", None)
    shared = each.resolve(BlockedCall(202, (0x1000, 0, 0, 0)), "S", None)

    assert private is not None
    assert shared is not None
    assert (private.kind, shared.kind) == ("futex", "futex")
    assert private.address == 0x1000
    assert asked == [True]


@pytest.mark.parametrize(
    ("operation", "seconds", "timeout_s"),
    [(0 | 128, 5, 5.0), (9 | 128, 58, 8.0), (9 | 128 | 256, 2_000_000_003, 3.0), (9, 10, 0.0)],
)
def test_deadlines_of_futexes_are_counted_from_now(
    proc: FakeProc, operation: int, seconds: int, timeout_s: float
) -> None:
    proc.process(10)
    pointer = Memory(proc, 10).put(0x2000, struct.pack("<qq", seconds, 0))

    found = waits(proc, 202, 0x1000, operation, 0, pointer)

    assert found is not None
    assert found.timeout_s == timeout_s


def test_poll_has_its_descriptors_and_its_timeout(proc: FakeProc) -> None:
    proc.process(10)
    proc.fd(10, 5, "pipe:[50]")
    proc.fd(10, 6, "socket:[60]")
    pointer = Memory(proc, 10).put(0x3000, struct.pack("<ihhihhihh", 5, 1, 0, -1, 0, 0, 6, 1, 0))

    timed = waits(proc, 7, pointer, 3, 5000)
    endless = waits(proc, 7, pointer, 3, 0xFFFFFFFF)

    assert timed is not None
    assert endless is not None
    assert (timed.kind, timed.fds, timed.targets) == ("poll", (5, 6), ("pipe:[50]", "socket:[60]"))
    assert (timed.timeout_s, endless.timeout_s) == (5.0, None)


def test_poll_without_rights_on_the_memory_is_still_a_poll(proc: FakeProc) -> None:
    proc.process(10)

    found = waits(proc, 7, 0x3000, 3, 1000)

    assert found is not None
    assert (found.kind, found.fds, found.timeout_s) == ("poll", (), 1.0)


def test_select_has_the_descriptors_of_its_sets(proc: FakeProc) -> None:
    proc.process(10)
    memory = Memory(proc, 10)
    reads = memory.put(0x4000, struct.pack("<Q", 1 << 3 | 1 << 9))
    writes = memory.put(0x4100, struct.pack("<Q", 1 << 4))

    found = waits(proc, 23, 10, reads, writes, 0, 0)

    assert found is not None
    assert (found.kind, found.fds) == ("poll", (3, 4, 9))


def test_epoll_leads_to_what_it_watches(proc: FakeProc) -> None:
    proc.process(10)
    proc.fd(10, 8, "socket:[80]")
    proc.write("10/fdinfo/4", "pos: 0\nflags: 02\ntfd:        8 events: 19 data: 8\n")

    found = waits(proc, 232, 4, 0x1000, 64, 0xFFFFFFFF)

    assert found is not None
    assert (found.kind, found.fds, found.targets) == ("poll", (8,), ("socket:[80]",))


@pytest.mark.parametrize(
    ("number", "arguments", "target"),
    [
        (61, (7,), "pid 1007"),
        (61, (0xFFFFFFFF,), "any child"),
        (247, (1, 7), "pid 1007"),
        (247, (0, 0), "any child"),
    ],
)
def test_waits_for_children_name_them_as_the_observer_knows_them(
    proc: FakeProc, number: int, arguments: tuple[int, ...], target: str
) -> None:
    proc.process(10)

    found = waits(proc, number, *arguments)

    assert found is not None
    assert (found.kind, found.targets) == ("child", (target,))


def test_a_sleep_has_its_duration(proc: FakeProc) -> None:
    proc.process(10)
    pointer = Memory(proc, 10).put(0x5000, struct.pack("<qq", 60, 500_000_000))

    relative = waits(proc, 230, 1, 0, pointer)
    absolute = waits(proc, 230, 1, 1, pointer)

    assert relative is not None
    assert absolute is not None
    assert (relative.kind, relative.timeout_s) == ("timer", 60.5)
    assert absolute.timeout_s == 10.5


@pytest.mark.parametrize(
    ("wchan", "kind"),
    [("futex_do_wait", "futex"), ("hrtimer_nanosleep", "timer"), ("poll_schedule_timeout", "poll")],
)
def test_a_call_that_a_tracer_interrupted_goes_by_its_wait_channel(
    proc: FakeProc, wchan: str, kind: str
) -> None:
    proc.process(10)

    found = resolver(proc).resolve(BlockedCall(219, (0, 128, 0, 0)), "S", wchan)

    assert found is not None
    assert found.kind == kind


def test_state_decides_before_the_call(proc: FakeProc) -> None:
    proc.process(10)
    proc.fd(10, 3, "/data/big.bin")

    stopped = waits(proc, 0, 3, state="T")
    disk = resolver(proc).resolve(BlockedCall(17, (3,)), "D", "folio_wait_bit")
    fault = resolver(proc).resolve(BlockedCall(-1), "D", "nfs_wait")

    assert stopped is not None
    assert disk is not None
    assert fault is not None
    assert (stopped.kind, stopped.call) == ("stopped", "read")
    assert (disk.kind, disk.targets) == ("disk", ("/data/big.bin", "folio_wait_bit"))
    assert (fault.kind, fault.targets) == ("disk", ("nfs_wait",))


@pytest.mark.parametrize("number", [74, 75, 277, 306])
def test_a_wait_until_data_is_on_the_disk_names_its_file(proc: FakeProc, number: int) -> None:
    proc.process(10)
    proc.fd(10, 3, "/runs/probe.log")

    found = resolver(proc).resolve(BlockedCall(number, (3,)), "D", "folio_wait_bit")

    assert found is not None
    assert found.call in SYNC_CALLS
    assert found.targets == ("/runs/probe.log", "folio_wait_bit")


@pytest.mark.parametrize("channel", ["kernel_clone", "_do_fork"])
def test_a_parent_in_vfork_waits_for_its_child_and_not_for_a_disk(
    proc: FakeProc, channel: str
) -> None:
    proc.process(10)

    found = resolver(proc).resolve(BlockedCall(435, (1 << 40, 88)), "D", channel)

    assert found is not None
    assert found.targets == ("the exec or exit of a child that it starts", channel)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_that_waits_for_a_disk_is_known_on_each_machine(machine: str) -> None:
    assert set(SYNC_CALLS) <= set(syscall_waits.names(machine).values())


def test_other_machines_have_other_numbers(proc: FakeProc) -> None:
    proc.process(10)
    proc.fd(10, 3, "pipe:[1]")

    found = resolver(proc, syscall_waits.names("aarch64")).resolve(BlockedCall(63, (3,)), "S", None)

    assert found is not None
    assert found.kind == "pipe-read"
    assert syscall_waits.names("riscv64") == {}
    assert resolver(proc, {}).resolve(BlockedCall(63, (3,)), "S", None) is None


def test_invalid_arguments_raise_nothing(proc: FakeProc) -> None:
    proc.process(10)
    huge = (1 << 64) - 1

    for number in X86:
        for state in "SDT":
            found = resolver(proc).resolve(BlockedCall(number, (huge,) * 6), state, "x")
            assert found is None or found.kind in get_args(WaitKind)
            assert state == "S" or (found is not None and found.kind in ("disk", "stopped"))
        bare = resolver(proc).resolve(BlockedCall(number), "S", None)
        assert bare is None or bare.kind in get_args(WaitKind)


def threads(
    proc: FakeProc, kept: dict[int, ThreadReading], count: int = 1
) -> dict[int, ThreadReading]:
    return read_threads(str(proc), 10, count, kept, resolver(proc))


def test_a_thread_that_has_not_run_is_not_read_again(proc: FakeProc) -> None:
    proc.process(10)
    proc.fd(10, 3, "pipe:[1]")
    proc.thread(10, 10, syscall="0 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n")
    first = threads(proc, {})
    proc.thread(10, 10, syscall="7 0x0 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n")

    same = threads(proc, first)
    proc.thread(10, 10, syscall="running\n", state="R", counters="11 20 31\n")
    moved = threads(proc, same)

    assert same[10].sample is first[10].sample
    assert (moved[10].sample.state, moved[10].sample.waits_on) == ("R", None)


def test_a_thread_that_woke_up_has_a_new_sample_once_it_has_used_a_tick(proc: FakeProc) -> None:
    tick_ns = 1_000_000_000 // procfs.TICKS_PER_S
    line = "0 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n"
    proc.process(10)
    proc.fd(10, 3, "pipe:[1]")
    proc.thread(10, 10, syscall=line, counters="10 20 30\n")
    first = threads(proc, {})
    proc.thread(10, 10, syscall=line, counters=f"{tick_ns - 1} 20 31\n")
    woken = threads(proc, first)
    proc.thread(10, 10, syscall=line, counters=f"{tick_ns} 20 32\n")
    ran = threads(proc, woken)

    assert woken[10].sample is first[10].sample
    assert [kept[10].sample.cpu_ticks for kept in (first, woken, ran)] == [0, 0, 1]
    assert ran[10].sample.waits_on == first[10].sample.waits_on


def test_a_thread_that_sleeps_again_has_its_new_duration(proc: FakeProc) -> None:
    proc.process(10)
    memory = Memory(proc, 10)
    line = f"230 0x1 0x0 {memory.put(0x5000, struct.pack('<qq', 60, 0)):#x} 0x0 0x0 0x0 0x7f 0x7f\n"
    proc.thread(10, 10, syscall=line)
    first = threads(proc, {})
    memory.put(0x5000, struct.pack("<qq", 9, 0))
    proc.thread(10, 10, syscall=line, counters="11 20 31\n")

    second = threads(proc, first)

    waits = [kept[10].sample.waits_on for kept in (first, second)]
    assert [wait.timeout_s for wait in waits if wait is not None] == [60.0, 9.0]


def test_without_counters_every_thread_is_read_each_time(proc: FakeProc) -> None:
    proc.process(10)
    proc.thread(10, 10, counters="0 0 0\n")
    first = threads(proc, {})
    proc.thread(10, 10, counters="0 0 0\n", state="R")

    assert threads(proc, first)[10].sample.state == "R"


def test_threads_that_come_and_go_are_noticed(proc: FakeProc) -> None:
    import shutil

    proc.process(10, threads=2)
    proc.thread(10, 11)
    first = threads(proc, {}, 2)
    shutil.rmtree(proc.root / "10/task/11")
    proc.thread(10, 12, name=b"\x1b[1mevil")

    second = threads(proc, first, 2)

    assert set(first) == {10, 11}
    assert set(second) == {10, 12}
    assert second[12].sample.name == "evil"


def test_only_futexes_that_may_be_shared_are_resolved_again_with_new_mappings() -> None:
    def waiting(tid: int, operation: int, kind: WaitKind) -> ThreadReading:
        line = b"202 0x7f0000000010 %#x 0x0 0x0 0x0 0x0 0x1 0x2\n" % operation
        sample = ThreadSample(tid, "t", "S", 1, waits_on=WaitedOn(kind, "futex"))
        return ThreadReading(b"1 2 3", line, sample)

    private, shared = 0x189, 0x109
    kept = {
        1: waiting(1, private, "futex"),
        2: waiting(2, shared, "futex"),
        3: waiting(3, shared, "semaphore"),
    }

    assert without_unsure(kept) == {1: kept[1], 3: kept[3]}


@pytest.mark.parametrize(
    ("flags", "end"), [(os.O_WRONLY | os.O_CREAT, "for reading"), (os.O_RDONLY, "for writing")]
)
def test_the_open_of_a_fifo_waits_for_a_process_that_opens_its_other_end(
    proc: FakeProc, flags: int, end: str
) -> None:
    proc.process(10)
    path = b"/t/a\x1b[31m.fifo\0" + bytes(4096)
    Memory(proc, 10).put(0x2FFE, path)  # over the end of a page
    call = BlockedCall(257, (0xFFFFFF9C, 0x2FFE, flags))

    found = resolver(proc).resolve(call, "S", "wait_for_partner")

    assert found is not None
    assert found.targets == (f"a process that opens /t/a.fifo {end}",)


def test_the_open_of_another_file_is_only_named(proc: FakeProc) -> None:
    found = resolver(proc).resolve(BlockedCall(257, (0xFFFFFF9C, 0x2FFE, 0)), "S", "nfs_wait")

    assert found == WaitedOn("unknown", "openat")


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"), [(0x7F3A_55C0_1010, 5), (10, 10**9), (10, -1), (-1, 0)]
)
def test_what_is_no_time_is_not_taken_for_the_length_of_a_sleep(
    proc: FakeProc, seconds: int, nanoseconds: int
) -> None:
    """A thread that woke up after its call was read has used the memory for something else."""
    proc.process(10)
    at = Memory(proc, 10).put(0x1000, struct.pack("<qq", seconds, nanoseconds))

    found = waits(proc, 230, 1, 0, at, 0)

    assert found is not None
    assert (found.kind, found.timeout_s) == ("timer", None)
