"""A system call in which a target is blocked continues after an attach, or stacks, as without."""

from __future__ import annotations

import json
import os
import struct

import pytest

from mpwatch.attach.inject import inject
from mpwatch.collect.process.py_spy import StackCollector
from tests import procfs
from tests.integration import on_demand
from tests.integration.attach.conftest import Start
from tests.procfs import eventually

pytestmark = pytest.mark.slow

NAP_S = 1.0
ATTEMPTS = 4
TIMED = ("poll_with_timeout", "select_with_timeout", "nanosleep", "futex_with_timeout")
RESTART_SYSCALL = {"x86_64": 219, "aarch64": 128}[os.uname().machine]
# On that processor, durations that only the kernel keeps are restarted; see
# `mpwatch.attach.arch.aarch64`.
BEGUN_ANEW = ("nanosleep", "futex_with_timeout") if os.uname().machine == "aarch64" else ()
WOKEN = {
    "read_pipe": [5, "", "hello"],
    "recv": [5, "", "hello"],
    "recv_with_timeout": [5, "", "hello"],
    "epoll_wait": [1, "", ""],
    "poll": [1, "", ""],
    "sem_wait": [0, "", ""],
    "read_with_timeout": [5, "", "hello"],
    "readv_with_timeout": [5, "", "hello"],
    "recvmsg_with_timeout": [5, "", "hello"],
    "accept_with_timeout": [1, "", ""],
    "connect_with_timeout": [0, "", ""],
    "semop": [0, "", ""],
    "semtimedop": [0, "", ""],
    "msgrcv": [5, "", "hello"],
    "inotify": [1, "", ""],
    "sigtimedwait": [10, "", ""],
    "io_getevents": [1, "", ""],
    "ppoll_with_constant": [1, "", ""],
    "pselect_with_constant": [1, "", ""],
    "recvmmsg_one": [1, "", "hello"],
    "epoll_pwait2": [1, "", ""],
    "read_terminal": [6, "", "hello"],
}
SENT_BYTES = 1 << 22
TRANSFERS = {
    "write_all": [SENT_BYTES, "", ""],
    "writev_all": [SENT_BYTES, "", ""],
    "send_all": [SENT_BYTES, "", ""],
    "sendmsg_all": [SENT_BYTES, "", ""],
    "sendfile_all": [SENT_BYTES, "", ""],
    "splice_with_timeout": [5, "", "hello"],
    "recv_all": [8, "", "xxxhello"],
    "recvmmsg_all": [2, "", "xxxhello"],
    "recv_with_low_water": [8, "", "xxxhello"],
    "read_raw_terminal": [8, "", "xxxhello"],
    "io_getevents_two": [2, "", ""],
}
FAILING_AFTER_A_STOP = (
    "epoll_wait",
    "recv_with_timeout",
    "semop",
    "sigtimedwait",
    "pselect_with_constant",
    "connect_tcp_with_timeout",
)
CONNECTIONS = {
    "connect_tcp_with_timeout": [0, "", ""],
    "connect_tcp_until_timeout": [-1, "EINPROGRESS", ""],
}


def is_blocked(pid: int) -> bool:
    return procfs.call(pid) is not None


@pytest.mark.parametrize("call", WOKEN)
def test_a_call_that_waits_for_data_gets_the_data_without_eintr(start: Start, call: str) -> None:
    running = start("attach_blocked", call)
    assert eventually(lambda: is_blocked(running.pid))
    attached = inject(running.process, timeout_s=0.05)
    assert attached.state == "pending", attached
    assert "blocked in" in attached.reason
    assert "restart_syscall" not in attached.reason
    assert running.state == "S"
    running.say(b"hello")
    *seen, _ = json.loads(running.line())
    assert seen == WOKEN[call]
    assert eventually(lambda: inject(running.process).state == "ready")


@pytest.mark.parametrize("call", [*TRANSFERS, *CONNECTIONS])
def test_a_call_that_cannot_be_repeated_is_not_interrupted(start: Start, call: str) -> None:
    running = start("attach_blocked", call)
    assert eventually(lambda: is_blocked(running.pid))
    attached = inject(running.process, timeout_s=0.05)
    assert (attached.state, attached.passes) == ("absent", True), attached
    expected = "part of the data transferred" if call in TRANSFERS else "fail with another error"
    assert expected in attached.reason
    assert attached.stopped_s is None
    if call != "connect_tcp_until_timeout":
        running.say(b"hello")
    *seen, _ = json.loads(running.line())
    assert seen == (TRANSFERS | CONNECTIONS)[call]
    assert eventually(lambda: inject(running.process, timeout_s=0.05).state == "pending")


@pytest.mark.parametrize(
    "call",
    on_demand.cases(
        [*WOKEN, *TRANSFERS, *CONNECTIONS],
        [*FAILING_AFTER_A_STOP, "read_pipe", "poll", "write_all", "recv_all"],
    ),
)
def test_stacks_are_taken_without_a_stop_that_a_blocked_call_would_report(
    start: Start, call: str
) -> None:
    """Python repeats such a call after EINTR, code in C may take it for an error."""
    running = start("attach_blocked", call)
    assert eventually(lambda: is_blocked(running.pid))
    collector = StackCollector()
    for _ in range(3):
        taken = collector.take(running.process)
        assert taken.problem is None
        assert call in [frame.function for frame in taken.stacks[0].frames]
    if call != "connect_tcp_until_timeout":
        running.say(b"hello")
    *seen, _ = json.loads(running.line())
    assert seen == (WOKEN | TRANSFERS | CONNECTIONS)[call]


@pytest.mark.parametrize(
    "call", on_demand.cases([*WOKEN, *TRANSFERS, *CONNECTIONS], FAILING_AFTER_A_STOP)
)
def test_so_they_are_while_another_thread_computes(start: Start, call: str) -> None:
    running = start("attach_blocked", call, "busy")
    assert eventually(lambda: is_blocked(running.pid))
    collector = StackCollector()
    seen_functions = set()
    for _ in range(3):
        taken = collector.take(running.process)
        assert taken.problem is None
        seen_functions |= {frame.function for stack in taken.stacks for frame in stack.frames}
    assert {call, "compute"} <= seen_functions
    if call != "connect_tcp_until_timeout":
        running.say(b"hello")
    *seen, _ = json.loads(running.line())
    assert seen == (WOKEN | TRANSFERS | CONNECTIONS)[call]


def test_no_write_of_a_thread_that_streams_returns_early(start: Start) -> None:
    """It runs for moments between two waits for room in the pipe, still in the same call."""
    running = start("attach_streaming")
    for _ in range(3):
        attached = inject(running.process, timeout_s=0.05)
        assert (attached.state, attached.passes) == ("absent", True), attached
        assert attached.stopped_s is None
    running.say(b"?")
    short, count = map(int, running.line().split())
    assert (short, count > 0) == (0, True)


@pytest.mark.parametrize("call", ["sendfile", "copy_file_range", "getrandom", "read"])
def test_no_call_of_a_thread_that_copies_within_the_kernel_returns_early(
    start: Start, call: str
) -> None:
    """It never waits, so that nothing shows from outside which call it is in."""
    running = start("attach_copying", call)
    for _ in range(3):
        attached = inject(running.process, timeout_s=0.05)
        assert (attached.state, attached.passes) == ("absent", True), attached
        assert "in the kernel all the time" in attached.reason
        assert attached.stopped_s is None
    running.say(b"?")
    short, count = map(int, running.line().split())
    assert (short, count > 0) == (0, True)
    assert eventually(lambda: inject(running.process).state == "ready")


@pytest.mark.parametrize("call", TIMED)
def test_a_call_with_a_timeout_ends_when_it_would_have_ended_anyway(
    start: Start, call: str
) -> None:
    """Neither later nor earlier, by what the kernel and the program say, whatever the load.

    Late would be a call that waits anew for its whole timeout: the kernel says that it continues
    the old wait. Early would be one that reports the end of its timeout before the program's own
    clock has come to it: that is the meaning of a timeout, which no load can shorten.
    """
    assert any(continues(start, call) for _ in range(ATTEMPTS))


def continues(start: Start, call: str) -> bool:
    """Attach in a call; false if it had returned before that could be seen, as under load."""
    running = start("attach_blocked", call)
    assert eventually(lambda: is_blocked(running.pid))
    number = procfs.call(running.pid)
    attached = inject(running.process, timeout_s=0.05)
    is_seen = attached.state == "pending" and sees_the_rest(running.pid, call, number)
    result, code, _, has_waited = json.loads(running.line())
    expected = (-1, "ETIMEDOUT") if call.startswith("futex") else (0, "")
    assert (result, code) == expected
    assert has_waited
    return is_seen


def sees_the_rest(pid: int, call: str, number: int | None) -> bool:
    """Check that the kernel goes on with the timeout that had begun before the attach.

    It does so in `restart_syscall`, which has no arguments: the end is in the kernel. select() is
    made again with what is left, which the kernel has stored in its argument (select(2), Linux).

    Returns:
        Whether the call was still blocked.
    """
    if call in BEGUN_ANEW:
        return True
    if call != "select_with_timeout":
        now = procfs.call(pid)
        assert number is None or now != number
        return now == RESTART_SYSCALL
    words = procfs.text(pid, "syscall").split()
    try:
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(int(words[5], 16))
            seconds, nanoseconds = struct.unpack("ll", memory.read(16))
    except (IndexError, OSError):
        return False
    if words != procfs.text(pid, "syscall").split() or int(words[0]) != number:
        return False
    assert 0 < seconds + nanoseconds / 1e9 < NAP_S
    return True


def test_attaching_twice_stops_a_blocked_call_once(start: Start) -> None:
    running = start("attach_blocked", "poll")
    assert eventually(lambda: is_blocked(running.pid))
    first = inject(running.process, timeout_s=0.05)
    assert first.stopped_s is not None
    second = inject(running.process, timeout_s=0.05)
    assert (second.state, second.stopped_s) == ("pending", None)
    running.say(b"hello")
    *seen, _ = json.loads(running.line())
    assert seen == WOKEN["poll"]


def test_a_signal_during_the_diversion_interrupts_the_blocked_call(
    start: Start,
) -> None:
    running = start("attach_plain", "blocked", stderr=-3)
    assert eventually(lambda: is_blocked(running.pid))

    def interrupt(name: str) -> None:
        if name == "write mask":
            os.kill(running.pid, 2)

    inject(running.process, timeout_s=0.05, step=interrupt)
    assert running.popen.wait(60) in (1, -2)
