"""What the hook adds in bytecodes: `python -m tests.benchmarks.hook_steps [PART ...]`.

Among processes that wake each other for every item nothing stays in the caches, and Python code
costs by its length: about 50 ns a bytecode instead of 5 (CPython 3.11, 2.6 GHz). Bytecodes can be
counted, which load on the machine does not change. The parts are those of `hook_jobs`: `pingpong`
(a round trip of a tiny tensor, both processes) and `tiny` (a batch of eight numbers, main and a
worker). To be counted slows the program some 60 times, so the hook's clock goes so much slower.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import threading
import time
import warnings
from typing import Any

from .hook_turns import STATES, turn

ROUNDS = 320
WARM_UP = 40
SLOWED = 60
SHOWN = 14
"""Number of functions of the hook that are printed, those with most bytecodes first."""
Counts = dict[str, float]


class Steps:
    """Counts the bytecodes of all threads that begin after `arm`, while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.counts: collections.Counter[str] = collections.Counter()

    def arm(self) -> None:
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def disarm(self) -> None:
        threading.settrace(None)
        sys.settrace(None)

    def begin(self) -> None:
        self.counts.clear()
        self.is_on = True

    def end(self, rounds: int) -> Counts:
        """Bytecodes for each of so many rounds, by function."""
        self.is_on = False
        return {name: count / rounds for name, count in self.counts.items()}

    def _enter(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: Any, event: str, _: Any) -> Any:
        if event == "opcode" and self.is_on:
            code = frame.f_code
            self.counts[f"{code.co_filename}:{code.co_name}"] += 1
        return self._step


def _slow_the_clock() -> None:
    from mpwatch.hook import session
    from mpwatch.hook.safe.unpatched import System

    class Slow(System):
        """A system whose clock is slowed down as much as the program is by counting."""

        def __init__(self) -> None:
            super().__init__()
            self.monotonic_ns = lambda: time.monotonic_ns() // SLOWED

    vars(session)["System"] = Slow


def _echo(inbox: Any, outbox: Any, steps: Steps) -> None:
    """Send tensors back; a text is a state to set in this process, a number the rounds to count."""
    steps.arm()
    while (item := inbox.get()) is not None:
        answer = item
        if isinstance(item, str):
            turn(item)
        elif isinstance(item, int) and item:
            answer = steps.end(item)
        elif isinstance(item, int):
            steps.begin()
        outbox.put(answer)


def pingpong() -> list[list[Counts]]:
    """Bytecodes of main and of its child for a round trip, in each of `STATES`."""
    import torch
    import torch.multiprocessing

    steps = Steps()
    steps.arm()
    context = torch.multiprocessing.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=_echo, args=(inbox, outbox, steps), daemon=True)
    child.start()

    def ask(item: Any) -> Any:
        inbox.put(item)
        return outbox.get()

    found = []
    for state in STATES:
        turn(state)
        ask(state)
        for _ in range(WARM_UP):
            ask(torch.ones(4))
        ask(0)
        steps.begin()
        for _ in range(ROUNDS):
            ask(torch.ones(4))
        found.append([steps.end(ROUNDS), ask(ROUNDS)])
    steps.disarm()
    turn("bare")
    inbox.put(None)
    child.join()
    return found


def tiny() -> list[list[Counts]]:
    """Bytecodes of main and of its worker for a batch of eight numbers, in each of `STATES`."""
    found = []
    for state in STATES:
        turn(state)
        _epoch()  # imports and first calls
        found.append(_epoch())
    turn("bare")
    return found


def _epoch() -> list[Counts]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    steps, (readable, writable) = Steps(), os.pipe()

    class Counted(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            if index == 8 * WARM_UP:
                steps.begin()
            elif index == 8 * (WARM_UP + ROUNDS):
                os.write(writable, json.dumps(steps.end(ROUNDS)).encode())
            return super().__getitem__(index)

    data = Counted(torch.arange(8 * (ROUNDS + 2 * WARM_UP)))
    steps.arm()
    batches = iter(DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context="fork"))
    for _ in range(WARM_UP):
        next(batches)
    steps.begin()
    for _ in range(ROUNDS):
        next(batches)
    main = steps.end(ROUNDS)
    steps.disarm()
    for _ in batches:
        continue
    worker = json.loads(os.read(readable, 1 << 16))
    os.close(readable)
    os.close(writable)
    return [main, worker]


def show(what: str, found: list[list[Counts]]) -> None:
    """Print the bytecodes of a round, and what wrappers and the hook add, by function."""
    totals = [sum(sum(counts.values()) for counts in state) for state in found]
    print(f"bytecodes for {what}, two processes: {totals[0]:.0f}")
    for name, total in zip(("empty wrappers", "the hook"), totals[1:], strict=True):
        more = total - totals[0]
        print(f"more with {name + ':':16} {more:.0f}, {100 * more / totals[0]:.1f} %")
    for who, counts in zip(("first", "second"), found[-1], strict=True):
        own = {name: each for name, each in counts.items() if "/mpwatch/hook/" in name}
        rows = sorted(own.items(), key=lambda row: -row[1])
        words = (f"{name.rpartition(':')[2]} {each:.0f}" for name, each in rows[:SHOWN] if each > 1)
        print(f"  the {who} process, {sum(own.values()):.0f}:", ", ".join(words))


PARTS = {"pingpong": ("a round trip", pingpong), "tiny": ("a batch", tiny)}


def main() -> None:
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"
    _slow_the_clock()
    for part in sys.argv[1:] or list(PARTS):
        what, count = PARTS[part]
        show(what, count())


if __name__ == "__main__":
    main()
