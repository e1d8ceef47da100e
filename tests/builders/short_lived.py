"""A job that starts short-lived processes again and again, as the fold receives it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookGauges, HookHello, HookNote, HookStatus, Input
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, MemorySample, ProcSample, ThreadSample
from tests.builders.samples import MAIN, START_S, event, hook_slice, rebuilt, sample, shared, tree

AT_ONCE = 25
"""Processes of one reading; the next one has others."""
SEGMENTS = 50
"""Inodes in use at a time: the kernel reuses them."""


def short_lived(count: int) -> Iterator[Input]:
    """Readings of a main process and `AT_ONCE` children, of which none is read twice.

    Each child has a name of its own and a hook, sends main a tensor, which is received once the
    child has exited, and fails.

    Args:
        count: Children in all.
    """
    for first in range(0, count, AT_ONCE):
        at_s = START_S + first / AT_ONCE
        children = [ProcessId(1000 + n, 1000 + n) for n in range(first, first + AT_ONCE)]
        main = replace(sample(MAIN, at_s, role="main"), is_python=True)
        yield tree(at_s, main, *(_child(each, at_s) for each in children))
        for child in children:
            yield from _reports(child, at_s)
        received = (rebuilt(at_s + 0.6, child.pid % SEGMENTS) for child in children)
        yield hook_slice(MAIN, at_s + 0.6, *received)


def _child(process: ProcessId, at_s: float) -> ProcSample:
    made = sample(process, at_s, parent=MAIN.pid, role="spawned")
    return replace(
        made,
        is_python=True,
        memory=MemorySample(private_clean_bytes=0, private_dirty_bytes=1 << 20, read_at_s=at_s),
        threads=(ThreadSample(process.pid, "MainThread", "S", 5),),
        thread_count=1,
    )


def _reports(child: ProcessId, at_s: float) -> Iterator[Input]:
    """What the hook of a child reports, and its exit."""
    at_ns = int(at_s * 1e9) + 100_000_000
    birth = {"target": "__main__.train", "name": f"fold-{child.pid}"}
    yield HookStatus(child, at_s, "ready")
    yield HookHello(child, at_s, 1, "3.11.7", "2.13.0", child.pid, data={"birth": birth})
    yield hook_slice(
        child, at_s, shared(at_s, child.pid % SEGMENTS), event(wire.KNOWN, at_s, key=7)
    )
    yield HookGauges(child, at_s, {"queues": [{"depth": 1}]})
    yield HookNote(child, at_ns, "exit", {"code": 1, "how": "exit"})
    yield Ended(child, at_s + 0.5, 1)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that objects take while this runs, beyond what they take before.

    `work` calls `gc.collect` now and then, which is quick: the objects from before are left out.
    Else the peak depends on when the collector happens to run.
    """
    gc.collect()
    gc.freeze()
    tracemalloc.start(1)
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()
