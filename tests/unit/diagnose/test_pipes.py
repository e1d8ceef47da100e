from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import PipeEnds, pipe_ends
from mpwatch.model.samples import Channel, FdLink, WaitedOn, channel_of
from mpwatch.model.snapshot import Process, Snapshot
from tests.builders.snapshots import (
    MAIN,
    fds,
    main,
    pid,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
)

LINK = st.one_of(
    st.builds(pipe, st.integers(3, 9), st.integers(1, 4), st.booleans()),
    st.builds(socket, st.integers(3, 9), st.integers(3, 8), st.none() | st.integers(3, 8)),
)


def holding(number: int, links: Sequence[FdLink] | None) -> Process:
    return process(number, fds=fds(9, links=links))


def ends_of(*processes: Process) -> PipeEnds:
    """The ends of all channels that these tests use: another process polls them."""
    targets = (*(f"pipe:[{n}]" for n in (1, 2, 3, 4, 500)), *(f"socket:[{n}]" for n in range(3, 9)))
    waiting = thread(999, waits=WaitedOn("poll", "poll", targets, timeout_s=5.0))
    poller = process(999, "spawned", threads=[waiting], fds=fds(0, links=[]))
    return pipe_ends(Index(snapshot_of(*processes, poller)))


def brute(snapshot: Snapshot, inode: int, is_writable: bool) -> tuple[object, ...]:
    """The holders of one end of a pipe, found by a search of all descriptors."""
    return tuple(
        each.process
        for each in snapshot.living()
        if each.sample.fds is not None
        and any(
            link.kind == "pipe" and link.inode == inode and link.is_writable in (is_writable, None)
            for link in each.sample.fds.links or ()
        )
    )


@pytest.mark.slow
@given(st.lists(st.lists(st.lists(LINK, max_size=6), min_size=1, max_size=4), max_size=4))
def test_ends_follow_every_change_of_what_is_held(readings: list[list[list[FdLink]]]) -> None:
    for reading in readings:
        processes = [holding(100 + n, links) for n, links in enumerate(reading)]

        ends = ends_of(*processes)

        for inode in range(1, 5):
            channel = Channel("pipe", inode)
            assert ends.readers.get(channel, ()) == brute(snapshot_of(*processes), inode, False)
            assert ends.writers.get(channel, ()) == brute(snapshot_of(*processes), inode, True)


def test_channels_that_no_thread_waits_for_are_not_indexed() -> None:
    holders = [holding(100, [pipe(3, 77, True)]), holding(200, [pipe(3, 1, True), socket(4, 9, 5)])]

    ends = ends_of(*holders)

    assert ends.writers == {Channel("pipe", 1): (pid(200),)}
    assert ends.addresses == {}


def test_a_process_whose_descriptors_are_unknown_makes_the_index_incomplete() -> None:
    assert ends_of(holding(100, [])) == PipeEnds()
    assert not ends_of(holding(100, None)).is_complete


def test_data_on_a_socket_comes_from_the_processes_that_hold_its_other_end() -> None:
    one, other = Channel("socket", 5), Channel("socket", 6)

    ends = ends_of(holding(100, [socket(3, 5, 6)]), holding(200, [socket(3, 6, 5)]))

    assert ends.writers == {one: (pid(200),), other: (pid(100),)}
    assert ends.outward == frozenset()
    assert ends_of(holding(100, [socket(3, 5, 6)])).outward == frozenset((one,))


def test_a_socket_with_the_inode_of_a_pipe_is_another_channel() -> None:
    ends = ends_of(
        holding(100, [pipe(3, 4, False), socket(4, 3, 5)]),
        holding(200, [pipe(3, 4, True), socket(4, 5, 3)]),
        holding(300, [socket(3, 4, 8), pipe(4, 3, True), pipe(5, 5, False)]),
    )

    assert ends.readers[Channel("pipe", 4)] == (pid(100),)
    assert ends.writers[Channel("pipe", 4)] == (pid(200),)
    assert ends.writers[Channel("socket", 3)] == (pid(200),)
    assert ends.writers[Channel("socket", 5)] == (pid(100),)
    assert ends.writers[Channel("pipe", 3)] == (pid(300),)
    assert ends.outward == {Channel("socket", 4)}
    assert [ends.words(Channel(kind, 4)) for kind in ("pipe", "socket")] == ["pipe 4", "socket 4"]


def test_sides_of_a_pipe_are_kept_apart_and_unknown_ones_count_as_both() -> None:
    lone = FdLink(4, "socket", "socket:[1]", 1, None)
    ends = ends_of(
        main(fds=fds(3, links=[pipe(3, 500, True), lone])),
        process(200, fds=fds(3, links=[FdLink(3, "pipe", "pipe:[500]", 500, None)])),
        process(201, state="Z"),
    )

    assert ends.writers == {Channel("pipe", 500): (pid(MAIN), pid(200))}
    assert ends.readers == {Channel("pipe", 500): (pid(200),)}
    assert ends.is_complete


@pytest.mark.parametrize(
    ("target", "channel"),
    [
        ("pipe:[7]", Channel("pipe", 7)),
        ("pipe:[x]", None),
        ("socket:[7]", Channel("socket", 7)),
        ("", None),
    ],
)
def test_pipes_and_sockets_are_channels(target: str, channel: Channel | None) -> None:
    assert channel_of(target) == channel
