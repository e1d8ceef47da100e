"""Profilers of torch that record all rounds of a loop."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile


def recorded(text: str) -> list[tuple[str, str, int]]:
    """The marks of this kind in a file: function, what they are about and line."""
    text = "import torch\nfrom torch.profiler import profile\n" + textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.function, each.about, each.statement.line)
        for each in marks("/home/me/train.py", module)
        if each.kind == "records-all"
    ]


BLOCK = """\
def train(loader):
    with {profiler} as prof:
        for batch in loader:
            step(batch)
"""


@pytest.mark.parametrize(
    "profiler",
    [
        "profile()",
        "profile(activities=[ProfilerActivity.CPU], schedule=None)",
        "torch.profiler.profile(record_shapes=True)",
        "torch.autograd.profiler.profile()",
        "(profile() if args.profile else nullcontext())",
    ],
)
def test_a_block_around_a_loop_is_recorded_as_a_whole(profiler: str) -> None:
    about = profiler.strip("(").partition("(")[0]

    assert recorded(BLOCK.format(profiler=profiler)) == [("train", f"{about}, 4, 4-6", 4)]


@pytest.mark.parametrize(
    "profiler",
    [
        "profile(schedule=schedule(wait=1, warmup=1, active=3))",
        "profile(**options)",
        "torch.autograd.profiler.profile(enabled=False)",
        "memory.profile()",
        "cProfile.Profile()",
    ],
)
def test_a_profiler_with_a_schedule_or_of_another_library_is_none(profiler: str) -> None:
    assert recorded(BLOCK.format(profiler=profiler)) == []


@pytest.mark.parametrize(
    "text",
    [
        # The block is one round.
        """
        for batch in loader:
            with profile() as prof:
                step(batch)
        """,
        # It is stopped after some rounds.
        """
        with profile() as prof:
            for number, batch in enumerate(loader):
                step(batch)
                if number == 20:
                    prof.stop()
        """,
        """
        prof = profile()
        prof.start()
        for number, batch in enumerate(loader):
            step(batch)
            if number == 20:
                prof.stop()
        """,
        # It is stopped before the loop.
        """
        prof = profile()
        prof.start()
        step(first)
        prof.stop()
        for batch in loader:
            step(batch)
        """,
        # It is never started.
        """
        prof = profile()
        for batch in loader:
            step(batch)
        """,
        # By the number of the step, in methods.
        """
        class Profiled:
            def __init__(self):
                self.prof = profile()

            def on_step(self, step):
                if step == 10:
                    self.prof.start()
                if step == 20:
                    self.prof.stop()
        """,
        """
        class Profiled:
            def __init__(self):
                self.prof = profile()
                self.prof.start()

            def advance(self):
                self.count += 1
                if self.count > 20:
                    self.prof.stop()
        """,
        # Which of the two it is does not show.
        """
        class Profiled:
            def __init__(self, args):
                if args.steps:
                    self.prof = profile(schedule=schedule(wait=1, warmup=1, active=2))
                else:
                    self.prof = profile()
                self.prof.start()
        """,
    ],
)
def test_a_profiler_of_some_steps_is_none(text: str) -> None:
    assert recorded(text) == []


def test_a_profiler_that_is_stopped_only_after_the_loop() -> None:
    text = """
        def train(loader):
            prof = profile()
            prof.start()
            try:
                for batch in loader:
                    step(batch)
            finally:
                prof.stop()
    """

    assert recorded(text) == [("train", "profile, 6, 6-11", 5)]


def test_a_profiler_of_an_object_is_told_with_the_block_or_the_method_that_starts_it() -> None:
    text = """
        class OpTimes:
            def __init__(self, enabled):
                self.session = profile() if enabled else None

            def {start}(self):
                if self.enabled:
                    self.session.start()

            def {stop}(self, *exc):
                self.session.stop()
    """

    of_block = text.format(start="__enter__", stop="__exit__")
    of_calls = text.format(start="begin", stop="close")
    assert recorded(of_block) == [("__init__", "profile, 10, with OpTimes", 6)]
    assert recorded(of_calls) == [("__init__", "profile, 10, ", 6)]
    assert recorded(text.format(start="before_step", stop="after_step")) == []


@pytest.mark.parametrize(
    ("call", "is_marked"),
    [
        ("torch.cuda.memory._record_memory_history()", True),
        ("torch.cuda.memory._record_memory_history(max_entries=None)", True),
        ("torch.cuda.memory._record_memory_history(enabled='all')", True),
        ("torch.cuda.memory._record_memory_history(max_entries=100000)", False),
        ("torch.cuda.memory._record_memory_history(enabled=None)", False),
        ("torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=9)", False),
    ],
)
def test_a_history_of_allocations_without_a_limit(call: str, is_marked: bool) -> None:
    found = recorded(f"def main():\n    {call}\n    run()\n")

    assert found == [("main", "torch.cuda.memory._record_memory_history, 4, ", 4)] * is_marked
