"""When NCCL RAS is asked, and what becomes of its answers."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from mpwatch.collect.job.flight_recorder import NoAnswer
from mpwatch.model.account import Account, Activity, ProcessAccount, ThreadAccount
from mpwatch.model.collectives import NcclAnswer, NcclCommunicator, NcclPart, NcclStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.codec import LineDecoder, LineEncoder
from mpwatch.observe.sources.on_demand import ASK_AGAIN_S, INTERVAL_S, NcclStatuses
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import small_job
from tests.builders.snapshots import NOW_S, main, maps, pid, process, snapshot_of, thread

ANSWER = NcclAnswer(
    "2.30.7", 1, (NcclCommunicator("0x1", 2, parts=(NcclPart("AllReduce", "7", 1, (0,)),)),)
)


class World:
    """A made-up RAS, and what was reported of it."""

    def __init__(self) -> None:
        self.reported: list[NcclStatus] = []
        self.asked: list[tuple[list[ProcessId], int]] = []
        self.answer: NcclAnswer | OSError | None = ANSWER
        self.subject = NcclStatuses(self.reported.append, self.ask)

    def ask(self, processes: object, port: int) -> NcclAnswer | None:
        self.asked.append((list(processes), port))  # type: ignore[call-overload]
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    def read(self, snapshot: Snapshot) -> bool:
        """One reading; returns once what it began has ended."""
        is_due = self.subject.start_due(snapshot)
        for each in threading.enumerate():
            if each.name == "mpwatch-nccl":
                each.join(10)
        return is_due


def job(
    at_s: float, *still_s: float, libraries: tuple[str, ...] = ("libnccl.so.2",), address: str = ""
) -> Snapshot:
    """Ranks whose main threads have stood still for some seconds, and a worker of the first."""
    loaded = maps(300, libraries=libraries)
    ranks = [
        process(
            200 + index,
            "rank",
            threads=[thread(200 + index, still_s=seconds)],
            maps=loaded,
            environment={"NCCL_RAS_ADDR": address} if address else {},
        )
        for index, seconds in enumerate(still_s)
    ]
    worker = process(300, threads=[thread(300, still_s=90.0)], maps=loaded, parent=200)
    return snapshot_of(main(), *ranks, worker, at_s=at_s)


def test_it_is_asked_once_a_rank_is_still() -> None:
    world = World()

    assert not world.read(job(NOW_S, 0.0, 0.5))
    assert world.read(job(NOW_S + INTERVAL_S, 0.5, 5.0))

    assert world.asked == [([pid(201), pid(200), pid(300)], 28028)]
    assert [each.answer for each in world.reported] == [ANSWER]


@pytest.mark.parametrize(("for_s", "is_asked"), [(4.0, False), (12.0, True)])
def test_it_is_asked_once_a_rank_has_long_polled_for_the_gpu(for_s: float, is_asked: bool) -> None:
    world = World()
    running = job(NOW_S, 0.0)
    rank = running.processes[1]
    polls = ThreadAccount(200, "", Activity("spinning", "", "gpu"), NOW_S - for_s, 1, 0)
    account = Account(
        processes={rank.process: ProcessAccount(rank.process, NOW_S, 9, (polls,), (0,))}
    )

    assert world.read(replace(running, account=account)) == is_asked
    assert len(world.asked) == is_asked


def test_it_is_asked_again_at_an_interval_while_a_rank_is_still() -> None:
    world = World()

    asked = [n for n in range(40) if world.read(job(NOW_S + n, 5.0 + n))]

    assert asked == [0, ASK_AGAIN_S, 2 * ASK_AGAIN_S, 3 * ASK_AGAIN_S]
    first = world.reported[0].since_s
    assert {each.since_s for each in world.reported} == {first}


def test_an_answer_that_differs_begins_anew() -> None:
    world = World()
    world.read(job(NOW_S, 5.0))
    world.answer = replace(ANSWER, version="2.30.8")

    world.read(job(NOW_S + ASK_AGAIN_S, 5.0))

    first, second = world.reported
    assert second.since_s == second.at_s > first.at_s


def test_an_answer_counts_no_longer_once_the_ranks_go_on() -> None:
    world = World()
    world.read(job(NOW_S, 5.0))

    world.read(job(NOW_S + ASK_AGAIN_S, 0.1))
    world.read(job(NOW_S + 2 * ASK_AGAIN_S, 0.1))

    assert [each.answer for each in world.reported] == [ANSWER, None]


@pytest.mark.parametrize("answer", [None, NoAnswer("timed out"), FileNotFoundError("ended")])
def test_where_it_does_not_answer_nothing_is_reported(answer: OSError | None) -> None:
    world = World()
    world.answer = answer

    assert world.read(job(NOW_S, 5.0))

    assert world.reported == []


@pytest.mark.parametrize("libraries", [(), ("libcuda.so.1", "libnccl-net.so")])
def test_a_job_without_nccl_is_not_asked(libraries: tuple[str, ...]) -> None:
    world = World()

    assert not world.read(job(NOW_S, 5.0, libraries=libraries))
    assert world.asked == []


def test_a_worker_that_is_still_is_no_reason_to_ask() -> None:
    assert not World().read(job(NOW_S, 0.0))


def test_the_port_of_the_job_is_asked_and_none_where_it_has_another_form() -> None:
    world = World()

    assert world.read(job(NOW_S, 5.0, address="localhost:29000"))
    assert not world.read(job(NOW_S + ASK_AGAIN_S, 5.0, address="localhost"))

    assert [port for _, port in world.asked] == [29000]


def test_snapshots_hold_the_newest_answer_also_of_a_recording() -> None:
    status = NcclStatus(pid(200), 11.0, ANSWER, 11.0)
    again = LineDecoder().input(LineEncoder().line(status))
    assert again == status

    fold = Fold()
    fold.apply(small_job(10.0))
    fold.apply(again)
    assert fold.snapshot().nccl == status

    fold.apply(NcclStatus(pid(200), 12.0))
    assert fold.snapshot().nccl is None
