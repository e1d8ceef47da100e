"""An actor process: runs calls of each concurrency group in the order in which they were submitted."""
import logging
import queue
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import walltime

log = logging.getLogger("actor")


@dataclass
class Call:
    group: str
    seq: int
    method: str
    args: tuple = ()


@dataclass
class Group:
    name: str
    next_seq: int = 0
    pending: dict = field(default_factory=dict)
    deadline: float | None = None

    @property
    def has_gap(self) -> bool:
        return bool(self.pending) and self.next_seq not in self.pending


class OrderedCallQueue:
    """Calls may come in out of order. A gap that is not filled within `reorder_wait` is skipped."""

    def __init__(self, run, reorder_wait: float):
        self._run = run
        self._reorder_wait = reorder_wait
        self._groups: dict[str, Group] = {}

    def enqueue(self, call: Call) -> None:
        group = self._groups.setdefault(call.group, Group(call.group))
        if call.seq < group.next_seq:
            log.warning("call %s/%d came after its gap was skipped", call.group, call.seq)
            return
        group.pending[call.seq] = call
        self.execute_ready()

    def execute_ready(self) -> None:
        for group in self._groups.values():
            while group.next_seq in group.pending:
                call = group.pending.pop(group.next_seq)
                group.next_seq += 1
                self._run(call)
            if group.has_gap:
                group.deadline = time.monotonic() + self._reorder_wait
            else:
                group.deadline = None

    def time_left(self) -> float | None:
        deadlines = [g.deadline for g in self._groups.values() if g.deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def skip_expired(self) -> None:
        now = time.monotonic()
        for group in self._groups.values():
            if group.deadline is not None and group.deadline <= now:
                first = min(group.pending)
                log.warning("group %s: giving up on calls %d..%d", group.name, group.next_seq, first - 1)
                group.next_seq = first
        self.execute_ready()


class ScoringActor:
    def __init__(self, dim: int, seed: int):
        rng = np.random.default_rng(seed)
        self.weights = [rng.normal(0, dim ** -0.5, size=(dim, dim)).astype(np.float32) for _ in range(3)]
        self.scored = 0
        self.pings = 0

    def score(self, batch: np.ndarray) -> float:
        x = batch
        for w in self.weights:
            x = np.tanh(x @ w)
        self.scored += len(batch)
        return float(x.mean())

    def report(self) -> dict[str, Any]:
        self.pings += 1
        return {"scored": self.scored, "pings": self.pings}


def actor_main(inbox, outbox, dim: int, seed: int, reorder_wait: float, limit: float) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(limit)
    actor = ScoringActor(dim, seed)

    def run(call: Call) -> None:
        value = getattr(actor, call.method)(*call.args)
        outbox.put((call.group, call.seq, value))

    calls = OrderedCallQueue(run, reorder_wait)
    log.info("actor is up")
    while True:
        try:
            call = inbox.get(timeout=calls.time_left())
        except queue.Empty:
            calls.skip_expired()
            continue
        if call is None:
            break
        calls.enqueue(call)
