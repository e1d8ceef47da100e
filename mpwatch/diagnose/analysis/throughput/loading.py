"""Who loads the data of a training: its own process, or workers that may have to share one cpu."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from statistics import mean
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames, program_frames
from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.throughput.shares import (
    core_share,
    is_work,
    shares,
    with_a_core,
)
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

_FETCH = "_utils/fetch.py:fetch"
_IN_MAIN = (_FETCH, "dataloader.py:_next_data")
"""Innermost first: the iterator of a DataLoader without workers (torch 2.1 to 2.14)."""
_SAMPLER = "dataloader.py:_next_index"
"""Asks the sampler, in the main process also where there are workers."""
LEAST_TIME = 0.2
"""With less of its time on a core, nothing is known of the rest."""
ONE_CPU = (60.0, 125.0)
"""Percent: what several busy workers get together if they share one."""
NO_CORE_SHARE = 0.5
"""They get less where others use that cpu as well: then at least two wait for it so much."""


class SharedCpu(NamedTuple):
    """The one cpu of several that the affinity leaves to all workers of a loader."""

    cpus: int
    """Of the machine."""
    percent: float
    """What the workers use of it together."""
    waits: float
    """Mean part of their time in which they wait for it, 0 to 1."""
    is_waited_for: bool
    """Whether at least two of them wait for it `NO_CORE_SHARE` of their time or more."""


def shared_cpu(index: Index, workers: Sequence[Process]) -> SharedCpu | None:
    """Whether all workers may use one cpu of several, and together use just that.

    Workers pinned to a cpu each use more than one together; idle workers are not slowed down.
    """
    cpus = index.snapshot.host.cpu_count
    if not cpus or cpus < 2 or len(workers) < 2:
        return None
    if any(worker.sample.cpus_allowed != 1 for worker in workers):
        return None
    loads = [mean_cpu_percent(worker, index.history) for worker in workers]
    known = [load for load in loads if load is not None]
    if len(known) < len(loads) or sum(known) > ONE_CPU[1]:
        return None
    if sum(load >= 10 for load in known) < 2:
        return None
    waits = [core_share(index, worker) for worker in workers]
    is_waited_for = sum(each >= NO_CORE_SHARE for each in waits) >= 2
    if sum(known) < ONE_CPU[0] and not is_waited_for:
        return None
    return SharedCpu(cpus, sum(known), mean(waits), is_waited_for)


class OwnLoading(Struct, frozen=True):
    """A process that makes its batches itself, as a DataLoader without workers does."""

    process: Process
    share: float
    """Of the time in which its main thread had a core, 0 to 1, at the lines at which it does that.
    """
    place: str
    """The line that it is at, `dataset.py:21 read`."""
    sampler: Frame | None = None
    """The function of the program that chooses items, if it does that there."""


def loads_itself(index: Index, process: Process) -> OwnLoading | None:
    """How much of its time a process loads batches in its main thread; `None` if it does not now.

    The share is that of the functions below the DataLoader on its present stack.
    """
    main = main_thread(process)
    if main is None or process.role == "loader-worker":
        return None
    is_sampler = calls(main.stack, _SAMPLER)
    if not is_sampler and not calls(main.stack, *_IN_MAIN):
        return None
    outer = _SAMPLER if is_sampler else _FETCH
    below = takewhile(lambda frame: not calls((frame,), outer), own_frames(main.stack))
    own = program_frames(tuple(below))
    if not own:
        return None
    functions = {_function(frame_words(each)) for each in own}
    share = sum(
        each.share
        for each in shares(index, process)
        if each.activity.place and is_work(each.activity)
        if _function(each.activity.place) in functions
    )
    part = with_a_core(index, process, share, LEAST_TIME)
    return OwnLoading(process, part, frame_words(own[0]), own[-1] if is_sampler else None)


def _function(place: str) -> tuple[str, str]:
    """File and function of `dataset.py:21 read`."""
    line, _, function = place.partition(" ")
    return line.partition(":")[0], function


class ReadsAll(Struct, frozen=True):
    """A generator that reads everything, in several processes, and passes on a part in each."""

    mark: Mark
    copies: int
    """Processes whose stacks show it."""

    @property
    def evidence(self) -> str:
        """Where a part of what was read is passed on."""
        return (
            f"{mark_words(self.mark)} passes on a part of what the loop over {self.mark.about} has "
            f"read, in each of {self.copies} processes"
        )

    @property
    def cause(self) -> str:
        """What that costs."""
        return (
            f"Each of {self.copies} processes reads all of {self.mark.about} and drops what is not "
            f"its part, at {mark_words(self.mark)}: every item is read and prepared {self.copies} "
            f"times in the job, so that a process takes about {self.copies} times as long for its "
            "own items as it has to."
        )

    @property
    def advice(self) -> str:
        """Where to divide instead."""
        return (
            "Divide before reading, not after: give each process its own part of the indices, "
            "files or shards (order[rank::world_size], or as many shards as there are processes or "
            "a multiple of that), so that it reads only what it uses. More workers or processes "
            "read everything once more each."
        )


def reads_all(index: Index, processes: Sequence[Process]) -> ReadsAll | None:
    """What all of some processes do that read the same as others, and use a part of it each.

    Their stacks show the work below the loop of such a generator, and at least two do so.
    """
    among = [each for each in index.snapshot.living() if _is_like(each, processes)]
    for mark in marks(index, "reads-all"):
        found = [each for each in among if _reads_below(index, each, mark)]
        if len(found) >= 2 and all(each in found for each in processes):
            return ReadsAll(mark, len(found))
    return None


def _is_like(process: Process, processes: Sequence[Process]) -> bool:
    return any(process.role == each.role for each in processes)


def _reads_below(index: Index, process: Process, mark: Mark) -> bool:
    """Whether a main thread is in a call that the loop of a mark makes to get the next item.

    What its body calls is done for the part that is passed on, or for what was not dropped yet.
    """
    main = main_thread(process)
    stack = program_frames(main.stack) if main is not None else []
    for frame in stack[1:]:
        if (frame.file, frame.function) == (mark.file, mark.function):
            line = source_of(index, frame)
            return line is not None and line.statement.text.startswith(("for ", "async for "))
    return False
