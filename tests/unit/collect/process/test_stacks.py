from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from mpwatch.collect.host import ptrace_access
from mpwatch.collect.host.ptrace_access import Stops, stops_of
from mpwatch.collect.process.py_spy import (
    CALL_OVER_S,
    READINGS,
    Finished,
    StackCollector,
    parse_dump,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FRAMES_LIMIT
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
            thread(10, frame("main.<locals>.go", "/a/train.py")),
        ]
    )

    taken = collector(proc, py_spy).take(TEN)

    assert taken.problem is None
    assert (taken.source, taken.cost_s, taken.at_s) == ("py-spy", 0.02, 7.0)
    assert [stack.tid for stack in taken.stacks] == [10, 12]
    assert [f.function for f in taken.stacks[0].frames] == ["go"]
    assert taken.stacks[1].frames[0][:3] == ("wait", "/lib/threading.py", 327)
    assert taken.stacks[0].has_gil is True


def test_children_are_never_asked_for_and_options_are_passed_on(proc: FakeProc) -> None:
    proc.process(10)
    py_spy = PySpy(output=[])

    collector(proc, py_spy).take(TEN, native=True, locals=True)

    assert py_spy.commands == [
        ["/bin/py-spy", "dump", "--json", "--pid", "10", "--native", "--locals"]
    ]


FAILED = "Error: Failed to get stack traces"


def is_stopped(py_spy: PySpy) -> list[bool]:
    """Of each run of py-spy, whether it stopped the process."""
    return ["--nonblocking" not in command for command in py_spy.commands]


def test_a_process_is_read_while_it_runs(proc: FakeProc) -> None:
    proc.process(10)
    py_spy = PySpy(output=[thread(10, frame("f", "a.py"))])

    taken = collector(proc, py_spy).take(TEN)

    assert is_stopped(py_spy) == [False]
    assert len(taken.stacks) == 1
    assert not taken.has_stopped


def test_a_process_is_stopped_if_it_could_not_be_read_several_times(proc: FakeProc) -> None:
    proc.process(10)
    py_spy = PySpy(status=1, errors=FAILED)

    taken = collector(proc, py_spy).take(TEN)

    assert is_stopped(py_spy) == [False] * READINGS + [True]
    assert taken.has_stopped
    assert taken.cost_s == pytest.approx(0.02 * (READINGS + 1))
    assert taken.problem == "py-spy failed on process 10: Failed to get stack traces."


def test_threads_that_have_numbers_only_after_a_stop_are_stopped_for_them(proc: FakeProc) -> None:
    """Those of Python 3.10; the number of the main thread is that of its process."""
    proc.process(10)
    main, other = thread(10, frame("f", "a.py")), thread(11, frame("g", "a.py"), name="T")
    main["os_thread_id"] = other["os_thread_id"] = None
    numbered = PySpy(output=[main])
    unnumbered = PySpy(output=[main, other])

    taken = collector(proc, numbered).take(TEN)
    stacks = collector(proc, unnumbered)
    stacks.take(TEN)
    stacks.take(TEN)

    assert is_stopped(numbered) == [False]
    assert [stack.tid for stack in taken.stacks] == [10]
    assert is_stopped(unnumbered) == [False, True, True]


@pytest.mark.parametrize(
    "errors", ["Error: Operation not permitted", "Error: Failed to find python version"]
)
def test_what_will_not_pass_is_not_tried_again(proc: FakeProc, errors: str) -> None:
    proc.process(10)
    proc.write("10/mem", "")
    py_spy = PySpy(status=1, errors=errors)

    collector(proc, py_spy).take(TEN)

    assert is_stopped(py_spy) == [False]


@pytest.mark.parametrize("options", [{}, {"native": True}, {"locals": True}])
@pytest.mark.parametrize("state", ["D", "T", "t"])
def test_a_process_that_cannot_be_stopped_is_not(
    proc: FakeProc, state: str, options: dict[str, bool]
) -> None:
    proc.process(10, state=state)
    py_spy = PySpy(status=1, errors=FAILED)

    collector(proc, py_spy).take(TEN, **options)

    assert is_stopped(py_spy) == [False] * READINGS


def test_a_process_under_a_debugger_is_not_stopped(proc: FakeProc) -> None:
    proc.process(10)
    status = (proc.root / "10/status").read_text().replace("TracerPid:\t0", "TracerPid:\t9")
    proc.write("10/task/10/status", status)
    py_spy = PySpy(status=1, errors=FAILED)

    collector(proc, py_spy).take(TEN)

    assert is_stopped(py_spy) == [False] * READINGS


WRITE = "1 0x5 0x7f00 0x100000 0x0 0x0 0x0 0x7ffe00 0x7f11\n"
SMALL_WRITE = WRITE.replace("0x100000", "0x1000")
WAIT = "202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe00 0x7f11\n"
on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")


EPOLL = "232 0x5 0x7f00 0x10 0xffffffff 0x0 0x0 0x7ffe00 0x7f11\n"
READ = "0 0x5 0x7f00 0x10 0x0 0x0 0x0 0x7ffe00 0x7f11\n"


@on_x86
@pytest.mark.parametrize("options", [{}, {"locals": True}])
@pytest.mark.parametrize(
    ("syscall", "may_be"), [(WRITE, False), (EPOLL, False), (READ, False), (WAIT, True)]
)
def test_a_process_with_a_thread_in_a_call_that_a_stop_changes_is_not_stopped(
    proc: FakeProc, syscall: str, may_be: bool, options: dict[str, bool]
) -> None:
    proc.process(10)
    proc.thread(10, 11, syscall=syscall)
    proc.fd(10, 5, "socket:[1]")
    py_spy = PySpy(status=1, errors=FAILED)

    collector(proc, py_spy).take(TEN, **options)

    assert any(is_stopped(py_spy)) == may_be


@on_x86
@pytest.mark.parametrize("syscall", [WRITE, EPOLL])
def test_a_process_seen_in_such_a_call_a_moment_ago_is_not_stopped(
    proc: FakeProc, syscall: str
) -> None:
    proc.process(10)
    proc.thread(10, 10, syscall=syscall)
    now_s = [7.0]
    py_spy = PySpy(output=[])
    stacks = StackCollector(str(proc), lambda: now_s[0], py_spy, "/bin/py-spy")
    stacks.take(TEN, locals=True)
    proc.thread(10, 10, syscall=WAIT)
    now_s[0] += CALL_OVER_S / 2
    stacks.take(TEN, locals=True)
    proc.thread(10, 10)
    now_s[0] += CALL_OVER_S
    stacks.take(TEN, locals=True)

    assert is_stopped(py_spy) == [False, False, True]


@on_x86
def test_native_stacks_need_a_stop(proc: FakeProc) -> None:
    proc.process(10)
    proc.thread(10, 10, syscall=EPOLL)
    py_spy = PySpy(output=[])

    collector(proc, py_spy).take(TEN, native=True)

    assert [command[-1] for command in py_spy.commands] == ["--native"]


@on_x86
def test_native_stacks_of_a_process_in_a_transfer_are_refused(proc: FakeProc) -> None:
    proc.process(10)
    proc.thread(10, 10, syscall=WRITE)
    py_spy = PySpy(output=[])

    taken = collector(proc, py_spy).take(TEN, native=True)

    assert py_spy.commands == []
    assert taken.problem == (
        "No native stacks of process 10: its thread 10 is in write(5), and py-spy would end that"
        " early. Stacks without native frames can be taken."
    )


@on_x86
@pytest.mark.parametrize(("target", "may_be"), [("pipe:[1]", True), ("socket:[1]", False)])
def test_a_write_that_a_pipe_takes_whole_or_not_at_all_is_no_transfer(
    proc: FakeProc, target: str, may_be: bool
) -> None:
    proc.process(10)
    proc.thread(10, 10, syscall=SMALL_WRITE)
    proc.thread(10, 11)
    proc.fd(10, 5, target)
    py_spy = PySpy(status=1, errors=FAILED)

    collector(proc, py_spy).take(TEN)

    assert any(is_stopped(py_spy)) == may_be


def test_where_the_kernel_does_not_show_system_calls_the_process_is_not_stopped(
    proc: FakeProc,
) -> None:
    proc.process(10)
    (proc.root / "10/task/10/syscall").unlink()
    py_spy = PySpy(status=1, errors=FAILED)

    collector(proc, py_spy).take(TEN)

    assert not any(is_stopped(py_spy))


@pytest.mark.parametrize(("threads", "may_be"), [(500, True), (10_000, False)])
def test_a_process_of_very_many_threads_is_not_stopped(
    proc: FakeProc, threads: int, may_be: bool
) -> None:
    proc.process(10, threads=threads)
    py_spy = PySpy(status=1, errors=FAILED)

    collector(proc, py_spy).take(TEN)

    assert any(is_stopped(py_spy)) == may_be


def test_locals_are_kept_short_and_clean(proc: FakeProc) -> None:
    evil = {"name": "x\x1b[31m", "repr": "\x07" + "y" * 10_000}
    (stack,) = parse_dump(
        TEN, 1.0, json.dumps([thread(10, frame("f", "a.py", locals=[evil]))]).encode()
    )

    ((name, value),) = stack.frames[0].locals
    assert name == "x"
    assert len(value) <= 200
    assert value.isprintable()


@pytest.mark.parametrize("mark", ["is_entry", "is_shim_entry"])
def test_functions_that_native_code_has_called_are_marked(proc: FakeProc, mark: str) -> None:
    """Before Python 3.11 all of them are, so that it says nothing."""

    def marks(*are_native: bool) -> list[bool]:
        frames = [frame(f"f{n}", "a.py", **{mark: each}) for n, each in enumerate(are_native)]
        (stack,) = parse_dump(TEN, 1.0, json.dumps([thread(10, *frames)]).encode())
        return [each.from_native for each in stack.frames]

    assert marks(False, True, False) == [False, True, False]
    assert marks(True, True, True) == [False, False, False]


def test_native_frames_are_kept_apart_from_those_of_python(proc: FakeProc) -> None:
    """As py-spy 0.4 shows a wait in torch's store, with `--native`."""
    proc.process(10)
    stack = (
        frame("poll", "/lib/libc.so.6", 0, module="/lib/libc.so.6", is_entry=True),
        frame("at::native.foo", "/x/libtorch.so", 0, module="/x/libtorch.so", is_entry=True),
        frame("Snapshotter.take", "/a/train.py", 49, module=None, is_entry=False),
        frame("<module>", "/a/train.py", 108, module=None, is_entry=True),
        frame("0x7f24a", "/lib/libc.so.6", 0, module="/lib/libc.so.6", is_entry=True),
    )
    py_spy = PySpy(output=[thread(10, *stack), thread(12, *stack[2:4])])

    taken = collector(proc, py_spy).take(TEN, native=True)

    mixed, python = taken.stacks
    assert [(f.function, f.line) for f in mixed.frames] == [("take", 49), ("<module>", 108)]
    assert mixed.frames == python.frames
    assert [(each.frame.function, each.is_native) for each in mixed.mixed] == [
        ("poll", True),
        ("at::native.foo", True),
        ("take", False),
        ("<module>", False),
        ("0x7f24a", True),
    ]
    assert python.mixed == ()


def test_deep_native_code_does_not_hide_the_line_of_the_program(proc: FakeProc) -> None:
    proc.process(10)
    native = [frame("f", "x.so", 0, module="x.so")] * 2 * FRAMES_LIMIT
    py_spy = PySpy(output=[thread(10, *native, frame("train", "/a/train.py", 7))])

    (stack,) = collector(proc, py_spy).take(TEN, native=True).stacks

    assert [f.function for f in stack.frames] == ["train"]
    assert len(stack.mixed) == FRAMES_LIMIT


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


@pytest.mark.parametrize(
    ("name", "file", "found"),
    [
        ("RolloutWorker.run", "/job/train.py", "RolloutWorker"),
        ("main.<locals>.RolloutWorker.run", "/job/train.py", "RolloutWorker"),
        ("run", "/job/train.py", ""),
        ("RolloutWorker.work", "/job/train.py", ""),
        ("BaseProcess.run", "/lib/multiprocessing/process.py", ""),
    ],
    ids=["a subclass", "a local subclass", "before Python 3.11", "another method", "a target"],
)
def test_the_class_whose_run_method_a_child_runs_is_kept(name: str, file: str, found: str) -> None:
    boot = frame("BaseProcess._bootstrap", "/lib/multiprocessing/process.py")
    parent = frame("Launcher.run", "/job/launch.py"), boot
    inner = frame("sleep", "/job/train.py"), frame(name, file)

    [stack] = parse_dump(TEN, 7.0, json.dumps([thread(10, *inner, boot, *parent)]).encode())

    assert stack.target_class == found
    assert stack.frames[1].function == name.rpartition(".")[2]
