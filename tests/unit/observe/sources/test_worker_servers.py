"""When worker servers are asked."""

from __future__ import annotations

import threading

from mpwatch.collect.job.flight_recorder import NoAnswer
from mpwatch.model.events import HookGauges
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Hook, Snapshot
from mpwatch.observe.sources.on_demand import ASK_AGAIN_S, INTERVAL_S, WorkerServers, servers
from tests.builders.snapshots import NOW_S, main, pid, process, snapshot_of, thread


class World:
    """Made-up servers, and what was reported of them."""

    def __init__(self) -> None:
        self.reported: list[HookGauges] = []
        self.asked: list[ProcessId] = []
        self.silent: set[ProcessId] = set()
        self.subject = WorkerServers(self.reported.append, self.ask)

    def ask(self, process: ProcessId, path: str) -> object:
        self.asked.append(process)
        if process in self.silent:
            raise NoAnswer("timed out")
        return {"states": [path]}

    def read(self, snapshot: Snapshot) -> bool:
        """One reading; returns once what it began has ended."""
        is_due = self.subject.start_due(snapshot)
        for each in threading.enumerate():
            if each.name == "mpwatch-recorder":
                each.join(10)
        return is_due


def job(at_s: float, *still_s: float, hook: str = "absent") -> Snapshot:
    """Ranks with a worker server, whose main threads have used no cpu for some seconds."""
    ranks = [
        process(
            200 + index,
            "rank",
            threads=[thread(200 + index, still_s=seconds), thread(900, name="pt_workerserver")],
            hook=Hook(state=hook),  # type: ignore[arg-type]
            environment={"TORCH_WORKER_SERVER_SOCKET": f"/tmp/{index}"},
        )
        for index, seconds in enumerate(still_s)
    ]
    return snapshot_of(main(), *ranks, at_s=at_s)


def test_all_ranks_are_asked_once_one_of_them_is_stalled() -> None:
    world = World()

    assert not world.read(job(NOW_S, 0.0, 0.5))
    assert world.read(job(NOW_S + INTERVAL_S, 5.0, 0.5))

    assert [each.process for each in world.reported] == [pid(200), pid(201)]
    assert world.reported[1].data == {"collectives": {"states": ["/tmp/1"]}}


def test_they_are_asked_again_at_an_interval_while_it_is_stalled() -> None:
    world = World()

    asked = [n for n in range(40) if world.read(job(NOW_S + n, 5.0 + n, 5.0))]

    assert asked == [0, ASK_AGAIN_S, 2 * ASK_AGAIN_S, 3 * ASK_AGAIN_S]


def test_an_answer_counts_no_longer_once_the_ranks_continue() -> None:
    world = World()
    world.read(job(NOW_S, 5.0))

    world.read(job(NOW_S + ASK_AGAIN_S, 0.1))
    world.read(job(NOW_S + 2 * ASK_AGAIN_S, 0.1))

    assert [each.data for each in world.reported] == [{"collectives": {"states": ["/tmp/0"]}}, {}]


def test_a_server_that_does_not_answer_keeps_no_other_from_being_asked() -> None:
    world = World()
    world.silent = {pid(200)}

    world.read(job(NOW_S, 5.0, 5.0))

    assert world.asked == [pid(200), pid(201)]
    assert [each.process for each in world.reported] == [pid(201)]


def test_a_rank_whose_hook_answers_and_a_process_without_a_server_are_not_asked() -> None:
    plain = snapshot_of(main(), process(200, "rank", threads=[thread(200)]))

    assert servers(job(NOW_S, 5.0, hook="ready")) == []
    assert servers(plain) == []
