from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.host.ptrace_access import Stops, stops_of
from mpwatch.collect.process.py_spy import Finished, StackCollector, parse_dump
from mpwatch.model.ids import ProcessId
from tests.unit.collect.conftest import FakeProc

TEN = ProcessId(10, 10)


def frame(name: str, file: str, line: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line, "locals": None, **more}


def thread(
    tid: int, *frames: dict[str, Any], pid: int = 10, name: str | None = "MainThread"
) -> Any:
    return {
        "pid": pid,
        "os_thread_id": tid,
        "thread_name": name,
        "active": False,
        "owns_gil": tid == 10,
        "frames": list(frames),
    }


class PySpy:
    """A stand-in for py-spy: keeps the commands, and returns the answers of the test."""

    def __init__(
        self, status: int = 0, output: Any = (), errors: str = "", late: bool = False
    ) -> None:
        self.commands: list[list[str]] = []
        self.answer = Finished(
            status, json.dumps(output).encode(), errors, 0.02, 5.0, has_timed_out=late
        )

    def __call__(self, command: Sequence[str], limit_s: float) -> Finished:
        self.commands.append(list(command))
        return self.answer


def collector(proc: FakeProc, py_spy: PySpy) -> StackCollector:
    return StackCollector(str(proc), lambda: 7.0, py_spy, "/bin/py-spy")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptrace_access, "_SETTLE_S", 0.0)
    monkeypatch.setattr(ptrace_access, "_PAUSE_S", 0.0)


def test_threads_come_main_first_with_plain_function_names(proc: FakeProc) -> None:
    proc.process(10)
    py_spy = PySpy(
        output=[
            thread(12, frame("Condition.wait", "/lib/threading.py", 327), name=None),
            thread(10, frame("at::native.foo", "x.so"), frame("main.<locals>.go", "/a/train.py")),
        ]
    )

    taken = collector(proc, py_spy).take(TEN)

    assert taken.problem is None
    assert (taken.source, taken.cost_s, taken.at_s) == ("py-spy", 0.02, 7.0)
    assert [stack.tid for stack in taken.stacks] == [10, 12]
    assert [f.function for f in taken.stacks[0].frames] == ["at::native.foo", "go"]
    assert taken.stacks[1].frames[0][:3] == ("wait", "/lib/threading.py", 327)
    assert taken.stacks[0].has_gil is True


def test_children_are_never_asked_for_and_options_are_passed_on(proc: FakeProc) -> None:
    proc.process(10)
    py_spy = PySpy(output=[])

    collector(proc, py_spy).take(TEN, native=True, locals=True)

    assert py_spy.commands == [
        ["/bin/py-spy", "dump", "--json", "--pid", "10", "--native", "--locals"]
    ]


@pytest.mark.parametrize("state", ["D", "T", "t"])
def test_a_process_that_cannot_be_stopped_is_read_while_it_runs(proc: FakeProc, state: str) -> None:
    proc.process(10, state=state)
    py_spy = PySpy(output=[])

    collector(proc, py_spy).take(TEN)

    assert py_spy.commands[0][-1] == "--nonblocking"


def test_a_process_under_a_debugger_is_read_while_it_runs(proc: FakeProc) -> None:
    proc.process(10)
    status = (proc.root / "10/status").read_text().replace("TracerPid:\t0", "TracerPid:\t9")
    proc.write("10/task/10/status", status)
    py_spy = PySpy(output=[])

    collector(proc, py_spy).take(TEN)

    assert py_spy.commands[0][-1] == "--nonblocking"


@pytest.mark.parametrize(("threads", "is_stopped"), [(500, True), (10_000, False)])
def test_a_process_of_very_many_threads_is_not_stopped(
    proc: FakeProc, threads: int, is_stopped: bool
) -> None:
    proc.process(10, threads=threads)
    py_spy = PySpy(output=[])

    collector(proc, py_spy).take(TEN)

    assert ("--nonblocking" not in py_spy.commands[0]) == is_stopped


def test_locals_are_kept_short_and_clean(proc: FakeProc) -> None:
    evil = {"name": "x\x1b[31m", "repr": "\x07" + "y" * 10_000}
    (stack,) = parse_dump(
        TEN, 1.0, json.dumps([thread(10, frame("f", "a.py", locals=[evil]))]).encode()
    )

    ((name, value),) = stack.frames[0].locals
    assert name == "x"
    assert len(value) <= 200
    assert value.isprintable()


def test_threads_of_other_processes_are_not_taken_for_ours(proc: FakeProc) -> None:
    assert parse_dump(TEN, 1.0, json.dumps([thread(11, pid=11)]).encode()) == ()


@pytest.mark.parametrize("output", [[{"pid": 10}], {"a": 1}, [1], "text"])
def test_an_answer_of_another_shape_is_a_problem_not_an_error(proc: FakeProc, output: Any) -> None:
    proc.process(10)

    taken = collector(proc, PySpy(output=output)).take(TEN)

    assert taken.problem == "py-spy's answer is not as expected."


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("Error: Failed to find python version from target process\n\nStack", "No Python"),
        (
            "Permission Denied: Try running again with elevated permissions",
            "already, and the kernel",
        ),
        ("Error: Operation not permitted (os error 1)", "end that debugger"),
        ("Error: something\x1b[31m odd\n\nStack backtrace:", "something odd"),
        ("", "no reason given"),
    ],
)
def test_errors_of_py_spy_become_one_sentence(proc: FakeProc, errors: str, words: str) -> None:
    proc.process(10)
    proc.write("10/mem", "")
    proc.write("10/status", (proc.root / "10/status").read_text().replace("Pid:\t0", "Pid:\t77"))

    taken = collector(proc, PySpy(status=1, errors=errors)).take(TEN)

    assert taken.problem is not None
    assert words in taken.problem
    assert taken.problem.isprintable()


def test_an_answer_that_is_too_late_is_a_problem_in_words(proc: FakeProc) -> None:
    proc.process(10)

    taken = collector(proc, PySpy(status=-9, late=True)).take(TEN)

    assert taken.problem == "py-spy gave no answer for process 10 in 5 s."


@pytest.mark.parametrize("state", ["Z", None])
def test_an_ended_process_is_not_asked(proc: FakeProc, state: str | None) -> None:
    if state is not None:
        proc.process(10, state=state)
    py_spy = PySpy()

    taken = collector(proc, py_spy).take(TEN)

    assert taken.problem == "Process 10 has ended."
    assert py_spy.commands == []


def test_a_missing_py_spy_is_a_sentence(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpwatch.collect.process.py_spy.find_py_spy", lambda: None)
    proc.process(10)
    bare = StackCollector(str(proc), lambda: 7.0, PySpy())

    assert bare.take(TEN).problem == "py-spy is not installed here: pip install py-spy."


def test_a_pending_stop_counts_as_stopping(proc: FakeProc) -> None:
    proc.process(10)
    pending = f"{1 << 18:016x}"
    status = (proc.root / "10/status").read_text()
    proc.write("10/task/10/status", status.replace(f"SigPnd:\t{0:016x}", f"SigPnd:\t{pending}"))

    assert stops_of(str(proc), 10) == Stops("S", 0, is_stopping=True)
