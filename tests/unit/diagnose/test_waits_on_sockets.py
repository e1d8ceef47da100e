from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.samples import Ended, FdLink, WaitedOn
from mpwatch.model.snapshot import Process
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    fds,
    main,
    pid,
    process,
    snapshot_of,
    socket,
    thread,
)
from tests.builders.waits import chain_of

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


def test_a_child_waits_for_whoever_holds_the_other_end_of_its_pair() -> None:
    found = chain_of(parent(), child())

    assert found.verdict == "progress"
    assert found.sentence == "child waits for data on socket 701 <- main runs"


def test_two_processes_that_both_read_form_a_cycle() -> None:
    found = chain_of(parent(reads(OURS)), child())

    assert found.verdict == "cycle"
    assert "84 s" in found.conclusion


def test_a_child_that_holds_the_other_end_itself_is_a_dead_end() -> None:
    both = [socket(3, OURS, THEIRS), socket(4, THEIRS, OURS)]

    found = chain_of(child(links=both))

    assert found.verdict == "dead-end"


def test_a_connection_that_leaves_the_machine_is_named_by_its_address() -> None:
    found = chain_of(parent(reads(OURS), [socket(3, OURS, None, TCP)]))

    assert found.verdict == "unknown"
    assert found.sentence == f"main waits for data on {TCP}"


def test_a_socket_newer_than_the_list_of_descriptors_has_an_unknown_end() -> None:
    found = chain_of(parent(reads(999)))

    assert found.sentence == "main waits for data on socket 999"
    assert "It has just been opened" in found.conclusion


def test_a_poll_that_a_process_outside_may_end_is_no_cycle() -> None:
    away = socket(5, 900, None, TCP)
    wait = WaitedOn("poll", "poll", (f"socket:[{OURS}]", "socket:[900]"))

    found = chain_of(parent(wait, [socket(3, OURS, THEIRS), away]), child())

    assert found.verdict == "unknown"


def sibling(number: int, end: int, *others: int, peer: int, **fields: Any) -> Process:
    """A child that reads from an end of its own and has inherited others."""
    links = [
        socket(4, end, peer),
        *(socket(5 + n, each, each - 1) for n, each in enumerate(others)),
    ]
    threads = [thread(number, waits=reads(end), still_s=84.0)]
    return process(
        number,
        role="spawned",
        label=f"env {number}",
        fds=fds(9, links=links),
        segments=(),
        threads=threads,
        **fields,
    )


def test_ends_that_siblings_have_inherited_make_no_cycle() -> None:
    """Main talks to three children, the third of which has crashed."""
    ours = [socket(3 + n, 700 + 10 * n, 701 + 10 * n) for n in range(3)]
    waits = [parent(reads(720), ours)]
    alive = [sibling(210, 701, 721, peer=700), sibling(211, 711, 701, 721, peer=710)]
    dead = process(
        212, role="spawned", label="env 212", ended=Ended(pid(212), NOW_S - 84, signal=11)
    )

    chains = wait_graph(Index(snapshot_of(*waits, *alive, dead))).chains

    assert {each.verdict for each in chains} == {"dead-end"}
    assert "env 212 (212) (signal 11 (SIGSEGV)) has exited" in chains[0].conclusion


def test_of_several_that_have_ended_those_that_had_the_other_end_are_named() -> None:
    ours = [socket(3 + n, 700 + 10 * n, 701 + 10 * n) for n in range(3)]
    alive = sibling(210, 701, 721, peer=700)
    dead = [
        process(
            number,
            role="spawned",
            label=f"env {number}",
            fds=fds(9, links=[socket(4, end, end - 1)]),
            ended=Ended(pid(number), NOW_S - 84, exit_code=0),
        )
        for number, end in ((211, 711), (212, 721))
    ]

    chains = wait_graph(Index(snapshot_of(parent(reads(720), ours), alive, *dead))).chains

    assert "env 212 (212) (exit code 0) has exited" in chains[0].conclusion
    assert "env 211" not in chains[0].conclusion


def test_a_process_that_polls_its_own_ends_has_only_inherited_another_one() -> None:
    """Main waits for the third child, whose end the first two have as well; one of them polls."""
    ours = [socket(3 + n, 700 + 10 * n, 701 + 10 * n) for n in range(3)]
    polls = WaitedOn("poll", "poll", ("socket:[711]",))
    threads = [thread(211, waits=polls, still_s=84.0)]
    second = replace(sibling(211, 711, 721, peer=710), threads=tuple(threads))
    third = sibling(212, 721, peer=720)

    chains = wait_graph(Index(snapshot_of(parent(reads(720), ours), second, third))).chains

    assert "main waits for data on socket 720 <- env 212 waits for data on socket 721" in {
        each.sentence for each in chains
    }


def test_without_an_exit_the_user_of_an_inherited_end_is_unknown() -> None:
    ours = [socket(3 + n, 700 + 10 * n, 701 + 10 * n) for n in range(3)]
    alive = [sibling(210, 701, 721, peer=700), sibling(211, 711, 701, 721, peer=710)]

    chains = wait_graph(Index(snapshot_of(parent(reads(720), ours), *alive))).chains

    assert {each.verdict for each in chains} == {"unknown"}


def test_a_child_that_reads_from_the_other_end_is_waited_for() -> None:
    ours = [socket(3 + n, 700 + 10 * n, 701 + 10 * n) for n in range(2)]
    alive = [sibling(210, 701, 711, peer=700), sibling(211, 711, 701, peer=710)]

    chains = wait_graph(Index(snapshot_of(parent(reads(710), ours), *alive))).chains

    cycle = chains[0]
    assert cycle.verdict == "cycle"
    assert (
        cycle.sentence
        == "main waits for data on socket 710 <- env 211 waits for data on socket 711"
    )


def test_a_server_that_waits_for_clients_is_idle_whatever_its_other_threads_wait_for() -> None:
    listens = socket(3, 800, None, "tcp listens on 127.0.0.1:4000")
    results = thread(MAIN + 1, "queues.py:get", waits=reads(OURS), still_s=84.0)
    accepts = thread(MAIN, waits=WaitedOn("accept", "accept4", ("socket:[800]",)), still_s=84.0)
    server = main(
        fds=fds(9, links=[listens, socket(4, OURS, THEIRS)]),
        segments=(),
        threads=[accepts, results],
    )

    chains = wait_graph(Index(snapshot_of(server, child()))).chains

    assert {each.verdict for each in chains} == {"ordinary"}
    assert "main waits for a client of tcp 127.0.0.1:4000" in chains[0].sentence
