"""Values are read only while a finding wants them, and not often."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mpwatch.collect.process.py_spy import values_in
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    Frame,
    FrameValues,
    NameValue,
    StackSample,
    StacksTaken,
    ValuesRead,
    WantedFrame,
)
from mpwatch.model.snapshot import Hook, Snapshot
from mpwatch.model.source_code import Decider, SourceLine, Statement
from mpwatch.observe.sources.on_demand import OUTSIDE_S, VALUES_S, ValueReads
from tests.builders.snapshots import NOW_S, main, pid, process, snapshot_of, thread
from tests.procfs import eventually

FILE = "/home/me/train.py"
WANTED = WantedFrame(300, FILE, "fit", ("step",))
FINDING = Finding(
    rule="no-progress", severity=Severity.WARNING, summary="", evidence=(), cause="", advice="",
    process=pid(300),
)  # fmt: skip


class World:
    """Reads values, and counts how often."""

    def __init__(self) -> None:
        self.asked: list[tuple[ProcessId, Sequence[WantedFrame]]] = []
        self.taken: list[tuple[ProcessId, Sequence[WantedFrame]]] = []

    def ask_hook(self, process: ProcessId, what: str, frames: Sequence[WantedFrame]) -> None:
        assert what == "values"
        self.asked.append((process, frames))

    def take_values(self, process: ProcessId, frames: Sequence[WantedFrame]) -> ValuesRead:
        self.taken.append((process, frames))
        return ValuesRead(process, NOW_S, "py-spy")


def job(at_s: float, *findings: Finding, is_hooked: bool = True) -> Snapshot:
    decider = Decider(Statement(20, "while step < 9:"), 30, ("step",))
    return snapshot_of(
        main(),
        process(
            300,
            threads=[thread(300, "train.py:fit:21")],
            hook=Hook("ready" if is_hooked else "absent"),
        ),
        at_s=at_s,
        findings=findings,
        source=(SourceLine(FILE, 21, "fit", Statement(21, "x()"), deciders=(decider,)),),
    )


def test_without_a_finding_that_wants_values_nothing_is_asked() -> None:
    world, reported = World(), list[ValuesRead]()
    reads = ValueReads(world, reported.append)

    for second in range(60):
        reads.start_due(job(NOW_S + second), History())
        reads.start_due(job(NOW_S + second, replace(FINDING, rule="fd-limit")), History())
        reads.start_due(job(NOW_S + second, replace(FINDING, resolved_s=NOW_S)), History())

    assert (world.asked, world.taken, reported) == ([], [], [])


def test_a_hook_is_asked_once_in_five_seconds() -> None:
    world = World()
    reads = ValueReads(world, list[ValuesRead]().append)

    for second in range(20):
        reads.start_due(job(NOW_S + second, FINDING), History())

    assert world.asked == [(pid(300), (WANTED,))] * int(20 / VALUES_S)
    assert world.taken == []


def test_without_a_hook_values_are_read_from_outside_and_less_often() -> None:
    world, reported = World(), list[ValuesRead]()
    reads = ValueReads(world, reported.append)

    for number, second in enumerate((0.0, 1.0, OUTSIDE_S - 1, OUTSIDE_S), start=1):
        reads.start_due(job(NOW_S + second, FINDING, is_hooked=False), History())
        assert eventually(lambda: reads._thread is not None and not reads._thread.is_alive())
        assert len(world.taken) == (2 if number == 4 else 1)

    assert world.asked == []
    assert world.taken == [(pid(300), (WANTED,))] * 2
    assert len(reported) == 2


def test_of_what_py_spy_shows_only_numbers_and_types_are_kept() -> None:
    shown = (
        *(("step", "60"), ("is_last", "True"), ("none", "None"), ("rate", "0.5")),
        *(("text", '"secret"'), ("rows", "[1, 2]"), ("empty", "{}"), ("other", "1 secret")),
        *(("me", "<train.Trainer at 0x7f12>"), ("unasked", "3"), ("big", "9" * 30)),
    )
    stack = StackSample(pid(300), 300, "", (Frame("fit", FILE, 21, shown),), "py-spy", NOW_S)
    names = tuple(name for name, _ in shown if name != "unasked")
    wanted = [WantedFrame(300, FILE, "fit", (*names, "absent")), WANTED._replace(tid=1)]

    found = values_in(StacksTaken(pid(300), NOW_S, "py-spy", (stack,)), wanted)

    values = (
        NameValue("step", "int", 60),
        NameValue("is_last", "bool", True),
        NameValue("none", "NoneType"),
        NameValue("rate", "float", 0.5),
        NameValue("text", "str"),
        NameValue("rows", "list"),
        NameValue("empty", "dict", length=0),
        NameValue("other", "object"),
        NameValue("me", "Trainer"),
        NameValue("big", "object"),
    )
    assert found.frames == (FrameValues(300, FILE, "fit", 21, values),)
    assert "secret" not in str(found)
