"""Any inputs: the fold does not raise, its snapshots are the same, its memory is bounded."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import (
    HookEvent,
    HookGauges,
    HookHello,
    HookNote,
    HookSlice,
    HookStatus,
    Input,
    WrittenErrors,
)
from mpwatch.model.history import Point
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, StacksTaken, ThreadSample, TreeSample
from mpwatch.model.source_code import SourceRead
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, WORKER_0, sample, tree
from tests.builders.strategies import INPUTS

pytestmark = pytest.mark.slow

FEW = st.sampled_from([MAIN, WORKER_0, ProcessId(101, 5000)])


def about_few(each: Input, process: ProcessId) -> Input:
    """The input about one of a few processes, at a time that a machine can have."""
    if isinstance(each, HookNote):
        return replace(each, process=process, at_ns=each.at_ns % 10**15)
    each = replace(each, at_s=each.at_s % 1e6)
    if isinstance(each, SourceRead | WrittenErrors):
        return each
    if isinstance(each, TreeSample):
        samples = [replace(one, process=process) for one in each.processes]
        return replace(each, root=MAIN, ticks_per_s=100, processes=tuple(samples))
    return replace(each, process=process)


ANY = st.lists(st.builds(about_few, st.one_of(*INPUTS.values()), FEW), max_size=10)


@settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(ANY, st.sets(st.integers(0, 10)))
def test_any_inputs_fold_to_the_same_snapshot_however_often_it_is_asked_for(
    inputs: list[Input], asked: set[int]
) -> None:
    first = tree(1.0, sample(MAIN, 1.0))
    often, once = Fold(), Fold()
    for number, each in enumerate((first, *inputs)):
        often.apply(each)
        once.apply(each)
        if number in asked:
            often.snapshot()
            often.history()

    assert often.snapshot() == once.snapshot()
    assert points(often) == points(once)


def points(fold: Fold) -> dict[object, list[Point]]:
    history = fold.history()
    return {key: list(each) for key, each in (*history.processes.items(), *history.host.items())}


def busy_second(second: int, chance: random.Random) -> list[Input]:
    """A second of a job that starts processes, loaders and segments without an end."""
    at_s, at_ns = float(second), second * 10**9
    fresh = ProcessId(1000 + second % 30_000, second)
    thread = ThreadSample(MAIN.pid, "python", "S", second)
    main = sample(MAIN, at_s, threads=(thread,))
    kinds = list(wire.KIND_NAMES)
    events = tuple(
        HookEvent(
            20 * second + n,
            at_ns + n,
            chance.choice(kinds),
            1,
            5,
            5,
            chance.getrandbits(48),
            26,
            n,
            0,
        )
        for n in range(20)
    )
    worker = replace(sample(fresh, at_s, parent=MAIN.pid), is_python=True)
    return [
        tree(at_s, main, worker),
        HookHello(fresh, at_s, second, "3.11", None, fresh.pid),
        HookStatus(fresh, at_s, "ready"),
        HookSlice(MAIN, at_s, events, 0),
        HookNote(MAIN, at_ns, "start", {"pid": 40_000 + second, "name": "x"}, number=2 * second),
        HookNote(MAIN, at_ns, "call-site", {"inode": second, "device": 26, "site": "a.py:1"}),
        HookNote(ProcessId(7, second), at_ns, "exception", {"type": "E", "text": str(second)}),
        HookGauges(MAIN, at_s, {"loaders": [{"key": second, "pids": [second]}]}),
        StacksTaken(MAIN, at_s, "hook"),
        Ended(fresh, at_s, 0),
    ]


def size_after(fold: Fold, seconds: range) -> int:
    chance = random.Random(5)
    for second in seconds:
        for each in busy_second(second, chance):
            fold.apply(each)
    fold.snapshot()
    return len(pickle.dumps(fold))


def test_the_memory_of_a_long_job_is_bounded() -> None:
    fold = Fold()

    early = size_after(fold, range(1, 800))
    late = size_after(fold, range(800, 1600))

    assert late < 1.25 * early
