"""Arbitrary and damaged bytes where a ring or frames are expected: bounded results, no surprise."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mpwatch.collect.hook import client as ring_memory
from mpwatch.collect.hook import decode
from mpwatch.collect.hook.client import Delivered, Link
from mpwatch.collect.hook.decode import CLOCK_LIMIT_NS, decode_slice, parse_ring
from mpwatch.hook import wire
from mpwatch.model.events import HookSlice, HookStatus, Input
from tests.builders.hook_server import ME, ObservedHooks, records

from .test_decode import ring

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("MPWATCH_FUZZ_EXAMPLES", "200"))
"""Of each test; a larger number makes it a longer one."""
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
DAMAGE = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=40)
U64 = st.integers(0, (1 << 64) - 1)


def damaged(data: bytes, damage: list[tuple[int, int]], cut: int) -> bytes:
    """Bytes with some replaced, and the end cut off."""
    changed = bytearray(data)
    for place, value in damage:
        changed[place % len(changed)] = value
    return bytes(changed[: cut % (len(changed) + 1)])


def check_ring(data: bytes) -> None:
    found = parse_ring(data)

    room = max(0, len(data) - wire.HEADER_BYTES) // wire.RECORD_BYTES
    numbers = [event.sequence for event in found.events]
    assert len(numbers) <= room
    assert numbers == sorted(set(numbers))
    assert all(0 < event.at_ns < CLOCK_LIMIT_NS for event in found.events)
    assert found.lost >= 0
    assert (found.header is None) <= bool(found.problems)


@FUZZ
@given(st.binary(max_size=wire.HEADER_BYTES + 20 * wire.RECORD_BYTES))
def test_arbitrary_bytes_are_a_ring_or_none(data: bytes) -> None:
    check_ring(data)


@FUZZ
@given(st.integers(0, 40), st.integers(1, 16), DAMAGE, st.integers(0, 1 << 20))
def test_a_damaged_ring_gives_what_is_left(
    written: int, slots: int, damage: list[tuple[int, int]], cut: int
) -> None:
    check_ring(damaged(bytes(ring(written, slots)), damage, cut))


@FUZZ
@given(
    st.binary(max_size=64),
    st.lists(st.tuples(U64, U64), max_size=16),
    st.integers(0, 1 << 32),
    DAMAGE,
)
def test_a_ring_with_arbitrary_slots_is_read_in_order(
    name: bytes, rows: list[tuple[int, int]], slots: int, damage: list[tuple[int, int]]
) -> None:
    data = ring(0, slots=16)
    wire.ORIGIN.pack_into(data, wire.ORIGIN_AT, slots & 0xFFFFFFFF, 7, name)
    for slot, (number, at_ns) in enumerate(rows):
        offset = wire.HEADER_BYTES + slot * wire.RECORD_BYTES
        wire.RECORD.pack_into(data, offset, number, at_ns, 1, 2, 3, 4, 5, 6, 7, 8)

    check_ring(damaged(bytes(data), [], len(data)))
    check_ring(damaged(bytes(data), damage, len(data)))


@FUZZ
@given(st.lists(U64, max_size=40), st.binary(max_size=100))
def test_a_slice_is_decoded_or_refused(numbers: list[int], tail: bytes) -> None:
    data = b"".join(wire.RECORD.pack(n, n, 1, 0, 1, 2, 3, 4, 5, 6) for n in numbers) + tail
    if len(data) % wire.RECORD_BYTES:
        with pytest.raises(ValueError, match="not whole records"):
            decode_slice(data)
        return
    events, torn = decode_slice(data)

    assert len(events) + torn == len(data) // wire.RECORD_BYTES
    assert all(event.sequence >= 0 for event in events)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from((1 << 64, 10**400, -(10**400)))
    | st.floats()
    | st.text(max_size=20),
    lambda part: (
        st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=12), part, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ("protocol", "pid", "start_ticks", "since_ns", "missing", "torch", "python", "ring_inode",
     "kind", "at_ns", "n", "id", "threads", "error", "cpu_ns", "reason", "started_by")
)  # fmt: skip
SAID = st.dictionaries(FIELDS, JSON, max_size=8)
KINDS = st.sampled_from(
    (wire.HELLO, wire.RECORDS, wire.NOTE, wire.REPLY, wire.GAUGES, wire.GOODBYE, wire.REQUEST, 99)
)
FRAME = st.one_of(
    st.builds(lambda kind, said: (kind, json.dumps(said).encode()), KINDS, SAID),
    st.tuples(KINDS, st.binary(max_size=200)),
    st.builds(lambda numbers: (wire.RECORDS, records(*numbers)), st.lists(st.integers(0, 9))),
)


@FUZZ
@given(st.binary(max_size=300) | SAID.map(lambda said: json.dumps(said).encode()))
@example(b'{"threads": [], "cpu_ns": 1' + b"0" * 400 + b"}")
def test_an_object_and_what_is_made_of_it_are_decoded_or_refused(data: bytes) -> None:
    try:
        said = decode.parse_object(data)
    except ValueError:
        return
    makers: tuple[Any, ...] = (
        lambda: decode.note(ME, dict(said)),
        lambda: decode.gauges(ME, 1.0, dict(said)),
        lambda: decode.stacks(ME, 1.0, dict(said)),
    )
    for make in makers:
        make()
    with contextlib.suppress(ValueError):
        decode.hello(ME, 1.0, said)


@FUZZ
@given(st.lists(FRAME, max_size=6), DAMAGE, st.booleans(), st.integers(1, 400))
def test_a_stream_of_anything_ends_with_a_reason_or_waits_for_more(
    observed: ObservedHooks,
    frames: list[tuple[int, bytes]],
    damage: list[tuple[int, int]],
    is_introduced: bool,
    chunk: int,
) -> None:
    stream = b"".join(wire.pack_frame(kind, payload) for kind, payload in frames)
    if stream:
        stream = damaged(stream, damage, len(stream))
    if is_introduced:
        said = {"protocol": wire.PROTOCOL, "start_ticks": ME.start_ticks}
        stream = wire.pack_frame(wire.HELLO, json.dumps(said).encode()) + stream
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link = Link(observed.sample, ours, Delivered(), 0.0)
    found: list[Input] = []
    try:
        for place in range(0, len(stream), chunk):
            theirs.sendall(stream[place : place + chunk])
            found += link.read(1.0)
            if link.state == "gone":
                break
        theirs.close()
        if link.state != "gone":
            found += link.read(2.0)
    finally:
        theirs.close()
        link.close()

    assert link.state == "gone"
    assert isinstance(found[-1], HookStatus)
    assert found[-1].reason
    assert sum(isinstance(each, HookSlice) for each in found) <= len(stream) // 8


@pytest.mark.parametrize("kind", ["pipe", "file", "memory that shrinks", "other memory"])
def test_a_descriptor_that_is_no_sealed_ring_is_closed_unread(
    observed: ObservedHooks, kind: str
) -> None:
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    ends = list(os.pipe())
    fd = ends[0]
    if kind == "file":
        fd = os.open(__file__, os.O_RDONLY)
    elif kind != "pipe":
        fd = os.memfd_create("x", 2)
        if kind == "other memory":
            fcntl.fcntl(fd, 1033, 2)
    inode = os.fstat(fd).st_ino + (kind == "other memory")
    said = {"protocol": wire.PROTOCOL, "start_ticks": ME.start_ticks, "ring_inode": inode}
    assert hook.peer is not None
    before = len(os.listdir("/proc/self/fd"))
    frame = wire.pack_frame(wire.HELLO, json.dumps(said).encode())
    socket.send_fds(hook.peer, [frame], [fd])
    assert len(observed.poll()) == 2

    assert len(os.listdir("/proc/self/fd")) == before
    hook.close()
    (status,) = observed.poll()
    assert isinstance(status, HookStatus)
    for each in {fd, *ends}:
        os.close(each)


@pytest.mark.parametrize("says_goodbye", [False, True])
def test_records_that_were_not_sent_come_from_the_ring_once_the_connection_ends(
    observed: ObservedHooks, says_goodbye: bool
) -> None:
    data = ring(5)
    wire.HEADER.pack_into(data, 0, wire.MAGIC, 1, 4096, 64, 8, *ME, 5, 6)
    fd = os.memfd_create("x", 2)
    os.write(fd, data)
    fcntl.fcntl(fd, 1033, 2)
    hook = observed.hook()
    observed.clients.watch([observed.sample])
    hook.accept()
    said = {
        "protocol": wire.PROTOCOL,
        "start_ticks": ME.start_ticks,
        "ring_inode": os.fstat(fd).st_ino,
    }
    assert hook.peer is not None
    frame = wire.pack_frame(wire.HELLO, json.dumps(said).encode())
    socket.send_fds(hook.peer, [frame], [fd])
    os.close(fd)
    hook.say(wire.RECORDS, records(0, 1, 2))
    observed.poll()  # the kernel ends a read where a descriptor came along
    observed.poll()
    reading = observed.clients.links[ME].read_ring()
    assert reading is not None
    assert len(reading.events) == 5
    if says_goodbye:  # which follows as much as a socket holds at once
        hook.say(wire.GOODBYE, {"reason": "exit"})
    else:
        hook.close()

    rest, status = observed.poll()

    assert isinstance(rest, HookSlice)
    assert ([event.sequence for event in rest.events], rest.lost) == ([3, 4], 0)
    assert isinstance(status, HookStatus)
    assert status.state == "gone"


def test_only_one_descriptor_is_taken_of_those_that_come() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = len(os.listdir("/proc/self/fd"))
        socket.send_fds(theirs, [b"x"], [0, 1, 2, 0])
        data, fd = ring_memory.receive(ours, 10)
        assert data == b"x"
        assert fd is not None
        os.close(fd)

        assert len(os.listdir("/proc/self/fd")) == before
