"""Processes that take part in the same collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mpwatch.diagnose.stack_shapes import collective_of, main_thread, own_frames
from mpwatch.diagnose.tree import family_head
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot

_BACKWARD = "_engine_run_backward"
_THREADS_OF_A_GROUP = ("gloo_", "pt_nccl_")
"""How the threads of a process group are called (torch 2.13)."""


def in_collective(process: Process) -> str | None:
    """The collective that any of its threads is in; `None` if none."""
    for thread in process.threads:
        name = collective_of(own_frames(thread.stack))
        if name is not None:
            return name
    return None


def is_in_backward(process: Process) -> bool:
    """Whether a rank is in a backward pass, as part of which DistributedDataParallel reduces.

    That happens in native code: one that computes looks the same, but uses the cpu.
    """
    thread = main_thread(process)
    own = own_frames(thread.stack) if thread is not None else ()
    return (
        bool(own)
        and own[0].function == _BACKWARD
        and any(each.name.startswith(_THREADS_OF_A_GROUP) for each in process.threads)
    )


def rank_groups(snapshot: Snapshot) -> Iterator[tuple[Process, ...]]:
    """Living ranks with a common parent, by number, where any of them may be in a collective.

    Ranks started by torchrun have their number in the environment; those of mp.spawn are told by
    being siblings, and by what they call.
    """
    families: defaultdict[ProcessId | None, list[Process]] = defaultdict(list)
    for process in snapshot.living():
        if process.role not in ("rank", "spawned"):
            continue
        head = family_head(snapshot, process)
        families[None if head is None else head.process].append(process)
    for family in families.values():
        if len(family) > 1 and any(in_collective(p) or is_in_backward(p) for p in family):
            ranks = sorted(family, key=lambda p: (p.sample.rank or 0, p.process.start_ticks))
            yield tuple(ranks)
