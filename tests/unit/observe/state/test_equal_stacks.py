from __future__ import annotations

import pickle

from mpwatch.model.samples import Frame, StackSample, StacksTaken, ThreadSample
from mpwatch.observe.state.fold import Fold
from mpwatch.observe.state.process_builder import STACKS_KEPT, EqualStacks
from tests.builders.samples import MAIN, WORKER_0, sample, tree


def stack(line: int = 1) -> tuple[Frame, ...]:
    return (Frame("get", "/lib/queues.py", line), Frame("loop", "/lib/worker.py", 7))


def test_equal_stacks_of_two_processes_are_shown_as_one_object() -> None:
    fold = Fold()
    both = [
        sample(each, 1.0, threads=(ThreadSample(each.pid, "python", "S", 0),))
        for each in (MAIN, WORKER_0)
    ]
    fold.apply(tree(1.0, *both))
    for each in (MAIN, WORKER_0):
        taken = StackSample(each, each.pid, "MainThread", stack(), "hook", 1.0)
        fold.apply(StacksTaken(each, 1.0, "hook", (taken,)))

    shown = [process.threads[0].stack for process in fold.snapshot().processes]

    assert shown[0] == stack()
    assert shown[0] is shown[1]


def test_the_number_of_kept_stacks_is_bounded() -> None:
    equal = EqualStacks()
    sizes = []
    for line in range(3 * STACKS_KEPT):
        assert equal.one_of(stack(line)) == stack(line)
        sizes.append(len(pickle.dumps(equal)) if (line + 1) % (STACKS_KEPT // 4) == 0 else 0)

    assert max(sizes) <= 1.2 * max(sizes[:STACKS_KEPT])
