"""Processes of a DataLoader job that wait for each other, and their wait chain."""

from __future__ import annotations

from typing import Any

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.waits import WaitChain
from tests.builders.snapshots import (
    MAIN,
    fds,
    main,
    pipe,
    process,
    snapshot_of,
    thread,
)

DATA, WORK = 500, 600
C10D = "torch/distributed/distributed_c10d.py"


def reads(*inodes: int, timeout_s: float | None = 5.0) -> WaitedOn:
    targets = tuple(f"pipe:[{inode}]" for inode in inodes)
    return WaitedOn("poll", "poll", targets, timeout_s=timeout_s)


def waiting_main(*stack: str, still_s: float = 84.0, **more: Any) -> Process:
    links = [pipe(5, DATA, False), pipe(6, DATA, True), pipe(8, WORK, True)]
    return main(
        fds=fds(20, links=links),
        segments=(),
        threads=[thread(MAIN, *stack, waits=reads(DATA), still_s=still_s)],
        **more,
    )


def worker(number: int = 0, *threads: Thread, stack: tuple[str, ...] = (), **more: Any) -> Process:
    own = 200 + number
    links = [pipe(5, DATA, False), pipe(6, DATA, True), pipe(7, WORK, False), pipe(8, WORK, True)]
    idle = thread(own, *stack, waits=reads(WORK), still_s=84.0)
    return process(
        own,
        label=f"worker {number}",
        worker_id=number,
        start_method="fork",
        fds=fds(20, links=links),
        segments=(),
        threads=threads or [idle],
        **more,
    )


def chain(snapshot: Snapshot) -> WaitChain:
    chains = wait_graph(Index(snapshot)).chains
    assert len(chains) == 1, chains
    return chains[0]


def chain_of(*processes: Process) -> WaitChain:
    return chain(snapshot_of(*processes))
