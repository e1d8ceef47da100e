from __future__ import annotations

from collections.abc import Sequence

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.samples import FdLink, WaitedOn
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import WaitChain
from tests.unit.diagnose.worlds import MAIN, fds, main, process, socket, thread, world

OURS, THEIRS = 700, 701
CHILD = 200
TCP = "tcp 10.0.0.1:4000 > 10.0.0.2:29500"


def reads(inode: int) -> WaitedOn:
    return WaitedOn("socket-read", "recvfrom", (f"socket:[{inode}]",))


def parent(waits: WaitedOn | None = None, links: Sequence[FdLink] = ()) -> Process:
    state = "S" if waits is not None else "R"
    ends = links or [socket(3, OURS, THEIRS)]
    threads = [thread(MAIN, waits=waits, state=state, still_s=84.0)]
    return main(fds=fds(9, links=ends), segments=(), threads=threads)


def child(links: Sequence[FdLink] = ()) -> Process:
    ends = links or [socket(4, THEIRS, OURS)]
    threads = [thread(CHILD, waits=reads(THEIRS), still_s=84.0)]
    return process(
        CHILD, role="spawned", label="child", fds=fds(9, links=ends), segments=(), threads=threads
    )


def chain(*processes: Process) -> WaitChain:
    (found,) = wait_graph(Index(world(*processes))).chains
    return found


def test_a_child_waits_for_whoever_holds_the_other_end_of_its_pair() -> None:
    found = chain(parent(), child())

    assert found.verdict == "progress"
    assert found.sentence == "child waits for socket 701 <- main runs"


def test_both_ends_read_and_nobody_writes() -> None:
    found = chain(parent(reads(OURS)), child())

    assert found.verdict == "cycle"
    assert "84 s" in found.conclusion


def test_a_child_that_holds_the_other_end_itself_waits_for_nobody() -> None:
    both = [socket(3, OURS, THEIRS), socket(4, THEIRS, OURS)]

    found = chain(child(links=both))

    assert found.verdict == "dead-end"


def test_a_connection_that_leaves_the_machine_is_named_by_its_address() -> None:
    found = chain(parent(reads(OURS), [socket(3, OURS, None, TCP)]))

    assert found.verdict == "unknown"
    assert found.sentence == f"main waits for {TCP}"


def test_a_socket_that_is_newer_than_the_list_of_descriptors_is_none_of_outside() -> None:
    found = chain(parent(reads(999)))

    assert found.sentence == "main waits for socket 999"
    assert "Opened a moment ago" in found.conclusion


def test_a_poll_that_somebody_outside_may_end_is_no_circle() -> None:
    away = socket(5, 900, None, TCP)
    wait = WaitedOn("poll", "poll", (f"socket:[{OURS}]", "socket:[900]"))

    found = chain(parent(wait, [socket(3, OURS, THEIRS), away]), child())

    assert found.verdict == "unknown"
