"""A hook that is attached late knows older objects as far as possible, and all later events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mpwatch.attach.inject import inject
from mpwatch.attach.inject_tree import inject_tree
from mpwatch.collect.job.reader import ReadRequest
from mpwatch.model.snapshot import Loader, Process, Snapshot
from mpwatch.observe.sources.observer import Observer
from mpwatch.observe.sources.oneshot import OneShotOptions, new_observer
from mpwatch.observe.state.flows import LATE_S
from tests.integration.attach.conftest import Running, Start
from tests.integration.hook.client import Client, wait_for_sockets
from tests.procfs import eventually

pytestmark = pytest.mark.slow

STEPS_BEFORE, STEPS_AFTER = 6, 20
WORKERS = 2
BUFFER_BYTES, FRESH_BYTES, BATCH_BYTES = 4 * 1000, 4 * 500, 8 * 4 * 256


def step(running: Running, count: int) -> list[str]:
    """Let the program do so many steps; what it printed."""
    answers = []
    for _ in range(count):
        running.say(b"\n")
        answers.append(running.line())
    return answers


def waits_for_a_line(pid: int) -> bool:
    """Whether its main thread is blocked in a call on standard input."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    return call[0] not in ("running", "-1") and call[1] == "0x0"


@dataclass
class Observed:
    """What an observer received of the job: at its beginning, and after the steps."""

    answers: list[str] = field(default_factory=list)
    before: Snapshot | None = None
    after: Snapshot | None = None


def role(process: Process | None) -> str:
    if process is None:
        return "gone"
    # Its label also has its target once that is known.
    return "spawned" if process.role == "spawned" else process.label


Totals = dict[tuple[str, str], tuple[int, int, int]]


def totals(snapshot: Snapshot) -> Totals:
    """Tensors, bytes and bytes copied between two roles."""
    return {
        (role(snapshot.get(flow.sender)), role(snapshot.get(flow.receiver))): (
            flow.tensors,
            flow.bytes,
            flow.copied_bytes,
        )
        for flow in snapshot.flows
    }


def flows(observed: Observed) -> Totals:
    """The same for the events during the steps alone."""
    assert observed.before is not None
    assert observed.after is not None
    before = totals(observed.before)
    return {
        pair: (counts[0] - old[0], counts[1] - old[1], counts[2] - old[2])
        for pair, counts in totals(observed.after).items()
        for old in (before.get(pair, (0, 0, 0)),)
    }


def observe(running: Running, samples_to: Callable[[Observer], None]) -> Observed:
    """Let the job do its steps while it is observed."""
    observed = Observed()
    watch = new_observer(running.process, OneShotOptions(stacks=False))
    try:
        watch.read(ReadRequest.everything())
        assert not watch.is_ended
        samples_to(watch)
        everything(watch, WORKERS + 2)
        observed.before = watch.snapshot()
        observed.answers = step(running, STEPS_AFTER)
        everything(watch, WORKERS + 2)
        observed.after = watch.snapshot()
    finally:
        watch.close()
    return observed


def everything(watch: Observer, hooks: int) -> None:
    """Poll the hooks until none has sent an event for a while."""

    def ready() -> bool:
        watch.read(ReadRequest.everything())
        watch.poll_for(0.1)
        living = watch.snapshot().living()
        return sum(p.hook.state == "ready" for p in living) == hooks

    assert eventually(ready), watch.snapshot().problems
    seen: list[tuple[float, object]] = []

    def is_settled() -> bool:
        """Receipts without a recorded send are counted after a while."""
        watch.read(ReadRequest.everything())
        watch.ask_gauges()
        watch.poll_for(1.0)  # a reading costs more cpu than a second of listening
        snapshot = watch.snapshot()
        seen.append((snapshot.at_s, totals(snapshot)))
        since_s = next(at_s for at_s, counts in seen if counts == seen[-1][1])
        return snapshot.at_s - since_s > LATE_S + 1.0

    assert eventually(is_settled)


def early(start: Start, runtime: Path) -> Observed:
    running = start("attach_existing_objects", "early")
    with Client(wait_for_sockets(runtime, 1)[running.pid]) as client:
        stock = client.hello()["stock"]
    # A hook from the start does not search for older objects.
    assert (stock["loaders"], stock["queues"], stock["storages"]) == (0, 0, 0)
    step(running, STEPS_BEFORE)
    return observe(running, lambda watch: None)


def late(start: Start) -> Observed:
    running = start("attach_existing_objects", "late")
    step(running, STEPS_BEFORE)

    def bring(watch: Observer) -> None:
        samples = [process.sample for process in watch.snapshot().living()]
        outcomes = inject_tree(samples, lambda outcome: None, timeout_s=0.2)
        assert {outcome.state for outcome in outcomes} <= {"ready", "pending"}, outcomes
        step(running, 1)  # a thread that was blocked returns to Python

    return observe(running, bring)


def pids_of(observed: Observed, prefix: str) -> list[int]:
    assert observed.after is not None
    return [p.pid for p in observed.after.processes if p.label.startswith(prefix)]


def loads(observed: Observed, name: str) -> tuple[object, ...]:
    """The batches that wait before a worker and behind it."""
    assert observed.after is not None
    load = next(p.loader for p in observed.after.processes if p.label == name)
    return () if load is None else (load.worker_id, load.queued, load.task)


def parked(snapshot: Snapshot | None) -> int:
    assert snapshot is not None
    (loader,) = snapshot.loaders
    assert loader.parked is not None
    return loader.parked


def only_loader(observed: Observed) -> Loader:
    assert observed.after is not None
    (loader,) = observed.after.loaders
    return loader


def cache(observed: Observed, name: str) -> Any:
    assert observed.after is not None
    return next(p.shared_cache for p in observed.after.processes if p.label == name)


FIXED = ("workers", "prefetch", "persistent", "pin_memory", "dataset", "batch_size")


def test_a_job_attached_late_shows_the_same_as_one_with_the_hook_from_its_start(
    start: Start, runtime: Path
) -> None:
    one, other = early(start, runtime), late(start)
    step_of_bringing = 1
    assert other.answers[:-step_of_bringing] == one.answers[step_of_bringing:]
    for observed in (one, other):
        found = flows(observed)
        # The buffer is shared once and sent at every step; the other tensor is new each time.
        assert found.pop(("main", "spawned")) == (
            2 * STEPS_AFTER,
            STEPS_AFTER * (BUFFER_BYTES + FRESH_BYTES),
            STEPS_AFTER * FRESH_BYTES,
        )
        assert set(found) == {("worker 0", "main"), ("worker 1", "main")}
        # A batch that arrives before its turn is kept by the DataLoader.
        received = STEPS_AFTER + parked(observed.after) - parked(observed.before)
        assert sum(tensors for tensors, _, _ in found.values()) == received
        for tensors, size, copied in found.values():
            assert size == copied == tensors * BATCH_BYTES
    ours, theirs = only_loader(one), only_loader(other)
    assert {name: theirs.data[name] for name in FIXED} == {name: ours.data[name] for name in FIXED}
    assert theirs.data["pids"] == pids_of(other, "worker")
    assert theirs.next_task == STEPS_BEFORE + STEPS_AFTER + step_of_bringing
    assert ours.next_task == STEPS_BEFORE + STEPS_AFTER
    for observed in (one, other):
        # A parked batch is with the DataLoader already, and its replacement is not requested yet.
        outstanding = only_loader(observed).outstanding
        assert outstanding is not None
        assert outstanding + parked(observed.after) == WORKERS * 3
    for name in ("main", "worker 0", "worker 1"):
        assert loads(other, name) == loads(one, name)
    for observed, steps in ((one, 0), (other, step_of_bringing)):
        found = cache(observed, "main")
        # Each step sends one new tensor and receives a batch; the buffer exists all the time.
        entries = 2 * (STEPS_BEFORE + STEPS_AFTER + steps) + 1 + parked(observed.after)
        assert (found.entries, found.expired) == (entries, entries - 1 - parked(observed.after))


def test_existing_queues_and_loaders_are_known_at_once(start: Start, runtime: Path) -> None:
    running = start("attach_existing_objects", "late")
    step(running, 2)
    assert eventually(lambda: waits_for_a_line(running.pid))
    attached = inject(running.process, timeout_s=0.1)
    assert attached.state == "pending"
    step(running, 1)
    path = wait_for_sockets(runtime, 1)[running.pid]
    with Client(path) as client:
        hello = client.hello()
        gauges = client.ask("gauges")
    stock = hello["stock"]
    # inbox, outbox, the SimpleQueue, and three of the DataLoader's.
    assert (stock["loaders"], stock["queues"], stock["problem"]) == (1, 6, None)
    assert stock["storages"] >= 1
    assert stock["storage_bytes"] >= BUFFER_BYTES
    assert stock["took_ms"] >= 0
    assert len(gauges["queues"]) == 6
    (loader,) = gauges["loaders"]
    assert loader["dataset"] == "Numbers"
