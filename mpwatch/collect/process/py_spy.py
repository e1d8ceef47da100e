"""Python stacks by py-spy, with a time limit; no process stays stopped afterwards.

A process is read while it runs. A stop would end a transfer that has begun (a write to a pipe or
socket with much data) with what was transferred until then, and Python hands that count to the
program; other calls (`epoll_wait`, `semop`) fail with EINTR.

What py-spy reads of a thread that runs meanwhile may mix two moments some 0.1 ms apart, so that a
function seems to be called by one that called its predecessor: in 6 of 138 readings of a program
that is made to show it, whose functions take 0.1 ms each (py-spy 0.4.1, Python 3.11).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.host import isolated, ptrace_access
from mpwatch.collect.host.ptrace_access import Stops, resume_if_stopped, stops_of
from mpwatch.collect.process import procfs
from mpwatch.collect.process.syscall_waits import parse_syscall, reports_eintr, transfer_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    FRAMES_LIMIT,
    Frame,
    FrameValues,
    MixedFrame,
    NameValue,
    StackSample,
    StacksTaken,
    ValuesRead,
    WantedFrame,
)
from mpwatch.model.sanitize import NAME_LIMIT, clean

OUTPUT_LIMIT = 64 << 20
ERRORS_LIMIT = 64 << 10
_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
"""What py-spy gets of the environment: it may be a script, or need a library, of the installation.
"""


class Finished(Struct, frozen=True):
    """The result of a command."""

    status: int
    """Exit code; negative for a signal."""
    output: bytes
    errors: str
    cpu_s: float
    limit_s: float
    has_timed_out: bool = False


Runner: TypeAlias = Callable[[Sequence[str], float], Finished]
"""A command and a limit in seconds; raises OSError if it cannot be started."""


def run(command: Sequence[str], limit_s: float) -> Finished:
    """Run a command; at the limit it is killed.

    It gets a session of its own, see `isolated`: Ctrl-C in the terminal is for mpwatch, too, and a
    tracer that it kills at the wrong moment would leave its tracee stopped.

    Raises:
        OSError: It cannot be started.
    """
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    try:
        kept = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        pid = isolated.start(command, stdout=out_write, stderr=err_write, environment=kept)
    except OSError:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        os.close(out_write)
        os.close(err_write)
    texts: dict[int, bytearray] = {out_read: bytearray(), err_read: bytearray()}
    limits = {out_read: OUTPUT_LIMIT, err_read: ERRORS_LIMIT}
    is_complete = False
    try:
        is_complete = _drain(texts, limits, time.monotonic() + limit_s)
    finally:
        if not is_complete:
            os.kill(pid, signal.SIGKILL)
        os.close(out_read)
        os.close(err_read)
        _, status, usage = os.wait4(pid, 0)
    return Finished(
        status=os.waitstatus_to_exitcode(status),
        output=bytes(texts[out_read]),
        errors=texts[err_read].decode("utf-8", "replace"),
        cpu_s=usage.ru_utime + usage.ru_stime,
        limit_s=limit_s,
        has_timed_out=not is_complete,
    )


def _drain(texts: dict[int, bytearray], limits: dict[int, int], until_s: float) -> bool:
    """Read until all ends are closed; `False` if that did not happen in time or in bounds."""
    poller = select.poll()
    for fd in texts:
        poller.register(fd, select.POLLIN)
    left = len(texts)
    while left:
        ready = poller.poll(max(0.0, until_s - time.monotonic()) * 1000)
        if not ready:
            return False
        for fd, _ in ready:
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                poller.unregister(fd)
                left -= 1
            texts[fd] += chunk
            if len(texts[fd]) > limits[fd]:
                return False
    return True


LIMIT_S = 5.0
NATIVE_LIMIT_S = 20.0
"""The first native dump reads the symbols of every library: seconds on a cold disk."""
LOCALS_LIMIT = 64
STOPPED_THREADS_LIMIT = 500
"""py-spy stops all threads and then reads one after the other: 10,000 were stopped for 5 s."""
REPR_LIMIT = 200
READINGS = 3
"""Attempts to read a process that runs: of 300, 16 failed."""
CALL_SAMPLES = 4
CALL_SAMPLE_S = 0.0004
"""A thread in a transfer runs and waits in turn; while it runs its call cannot be seen."""
CALL_OVER_S = 5.0
"""How long after a call that a stop would change was seen in a process it is not stopped."""
_KEPT = 256
"""Processes of which such a thing is kept."""
_LINE_BYTES = 512

_CANNOT_STOP = {"D": "it is in uninterruptible sleep", "T": "it is stopped", "t": "it is traced"}


class _Call(Struct, frozen=True):
    """What a thread is in at one moment."""

    is_blocked: bool = False
    transfer: str = ""
    """The transfer that a stop would end early, in words."""
    failing: str = ""
    """The call that may fail with EINTR after a stop, in words."""


class _Attempt(Struct, frozen=True):
    """What one run of py-spy gave."""

    taken: StacksTaken
    may_pass: bool = False
    """Whether it failed, and another run may succeed."""


class StackCollector:
    """Takes stacks with py-spy."""

    def __init__(
        self,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        runner: Runner = run,
        program: str | None = None,
    ) -> None:
        """Prepare.

        Args:
            proc: Path of procfs.
            clock: CLOCK_MONOTONIC in seconds.
            runner: Runs a command with a time limit.
            program: Path of py-spy; looked for beside this Python and on PATH by default.
        """
        self._proc = proc
        self._clock = clock
        self._run = runner
        self._program = program or find_py_spy()
        self._machine = os.uname().machine
        self._transfers: dict[ProcessId, float] = {}
        """When a process was last seen in a transfer, by the clock."""
        self._failing: dict[ProcessId, float] = {}
        """When a process was last seen in a call that may fail after a stop, by the clock."""
        self._unnumbered: set[ProcessId] = set()
        """Processes whose threads had no numbers without a stop."""

    def take(
        self,
        process: ProcessId,
        *,
        native: bool = False,
        locals: bool = False,
        may_stop: bool = True,
        limit_s: float | None = None,
    ) -> StacksTaken:
        """Take the stacks of one process; a problem is in the result, nothing is raised.

        py-spy reads the process while it runs. Only for native stacks, for locals, if that failed
        several times, and for threads of Python 3.10, which have numbers only then, the process is
        stopped for some milliseconds; not if it cannot be stopped, or has a thread in a call that a
        stop would change. Native stacks cannot be had without a stop: of a process in a transfer
        there are none, other calls may fail with EINTR. Nor is it stopped without `may_stop`.
        """
        if self._program is None:
            return self._failed(process, "py-spy is not installed here: pip install py-spy.")
        stat = procfs.read_stat(self._proc, process.pid)
        if stat is None or stat.process != process or stat.has_ended:
            return self._failed(process, f"Process {process.pid} has ended.")
        stops = stops_of(self._proc, process.pid)
        can_stop = stops.state not in _CANNOT_STOP and stops.tracer_pid == 0
        can_stop = can_stop and may_stop and stat.thread_count <= STOPPED_THREADS_LIMIT
        command = [self._program, "dump", "--json", "--pid", str(process.pid)]
        command += ["--native"] * native + ["--locals"] * locals
        limit_s = limit_s or (NATIVE_LIMIT_S if native else LIMIT_S)
        if native and can_stop:
            transfer, _ = self._changed_by_stop(process)
            if not transfer:
                return self._run_once(process, command, limit_s, stops).taken
            reason = (
                f"{transfer}, and py-spy would end that early. Stacks without native frames can be "
                "taken."
            )
            return self._failed(process, f"No native stacks of process {process.pid}: {reason}")
        needs_stop = locals or process in self._unnumbered
        if needs_stop and can_stop and not any(self._changed_by_stop(process)):
            return self._run_once(process, command, limit_s, stops).taken
        reading = self._read_running(process, command, limit_s, stops)
        is_unnumbered = any(stack.tid is None for stack in reading.taken.stacks)
        if is_unnumbered:
            _make_room(self._unnumbered)
            self._unnumbered.add(process)
        if not (reading.may_pass or is_unnumbered) or not can_stop:
            return reading.taken
        if any(self._changed_by_stop(process)):
            return reading.taken
        stopped = self._run_once(process, command, limit_s, stops).taken
        cost_s = (reading.taken.cost_s or 0.0) + (stopped.cost_s or 0.0)
        return replace(stopped, cost_s=cost_s)

    def _read_running(
        self, process: ProcessId, command: Sequence[str], limit_s: float, stops: Stops
    ) -> _Attempt:
        """Read a process that runs; py-spy fails where it meets a frame that ends meanwhile."""
        cost_s, began_s = 0.0, self._clock()
        for _ in range(READINGS):
            attempt = self._run_once(process, [*command, "--nonblocking"], limit_s, stops)
            cost_s += attempt.taken.cost_s or 0.0
            if not attempt.may_pass or self._clock() > began_s + limit_s:
                break
        return _Attempt(replace(attempt.taken, cost_s=cost_s), attempt.may_pass)

    def _run_once(
        self, process: ProcessId, command: Sequence[str], limit_s: float, stops: Stops
    ) -> _Attempt:
        """Run py-spy once."""
        try:
            finished = self._run(command, limit_s)
        except OSError as error:
            return _Attempt(self._failed(process, f"py-spy cannot be started: {error.strerror}."))
        has_stopped = "--nonblocking" not in command
        if finished.status == 0:
            return _Attempt(replace(self._taken(process, finished), has_stopped=has_stopped))
        resume_if_stopped(self._proc, process, stops)
        problem, may_pass = self._why(process, finished, stops.state)
        failed = self._failed(process, problem, finished.cpu_s)
        return _Attempt(replace(failed, has_stopped=has_stopped), may_pass)

    def _changed_by_stop(self, process: ProcessId) -> tuple[str, str]:
        """What forbids a stop: a transfer that would end early, a call that may fail with EINTR.

        Each in words, empty if there is none. Also one that was seen some seconds ago: the next may
        begin before py-spy stops the process.
        """
        for sample in range(CALL_SAMPLES):
            if sample:
                time.sleep(CALL_SAMPLE_S)
            calls = self._calls(process.pid)
            for tid, call in calls.items():
                if call.transfer:
                    _keep(self._transfers, process, self._clock())
                    return f"its thread {tid} is in {call.transfer}", ""
                if call.failing:
                    _keep(self._failing, process, self._clock())
            if all(call.is_blocked for call in calls.values()):
                break
        if not calls and not os.path.exists(
            f"{self._proc}/{process.pid}/task/{process.pid}/syscall"
        ):
            return "the kernel does not show in which system calls its threads are", ""
        transfer, failing = (
            f"one of its threads was in {what} a moment ago"
            if self._clock() < seen.get(process, -CALL_OVER_S) + CALL_OVER_S
            else ""
            for seen, what in (
                (self._transfers, "a transfer"),
                (self._failing, "a call that fails after a stop"),
            )
        )
        return transfer, failing

    def _calls(self, pid: int) -> dict[int, _Call]:
        """The system call of each thread.

        Threads that may not be read are left out: py-spy needs the same right.
        """
        calls: dict[int, _Call] = {}
        folder = f"{self._proc}/{pid}"
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{folder}/task"):
                with contextlib.suppress(OSError):
                    calls[int(name)] = self._call(folder, f"{folder}/task/{name}")
        return calls

    def _call(self, folder: str, thread: str) -> _Call:
        """The system call of one thread.

        Raises:
            OSError: It cannot be read.
        """
        line = procfs.read(f"{thread}/syscall", _LINE_BYTES)
        call = parse_syscall(line)
        if call is None or call.number < 0:
            return _Call()
        transfer = transfer_of(call, self._machine, folder) or ""
        failing = reports_eintr(call, self._machine, folder) or ""
        return _Call(True, transfer, failing)

    def _taken(self, process: ProcessId, finished: Finished) -> StacksTaken:
        """The output of py-spy as values."""
        at_s = self._clock()
        try:
            stacks = parse_dump(process, at_s, finished.output)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return self._failed(process, "py-spy's answer is not as expected.", finished.cpu_s)
        return StacksTaken(process, at_s, "py-spy", stacks, finished.cpu_s)

    def _why(self, process: ProcessId, finished: Finished, state: str) -> tuple[str, bool]:
        """Why there are no stacks, in one sentence, and whether another run may have them."""
        pid, said = process.pid, finished.errors
        if procfs.read_stat(self._proc, pid) is None:
            return f"Process {pid} ended meanwhile.", False
        if finished.has_timed_out:
            return f"py-spy gave no answer for process {pid} in {finished.limit_s:g} s.", False
        if "ermission" in said or "not permitted" in said:
            return self._forbidden(pid), False
        if "python version" in said or "python binary" in said or "interpreter" in said.lower():
            return f"No Python interpreter was found in process {pid}.", False
        words = clean(said.removeprefix("Error: ").partition("\n")[0]) or "no reason given"
        if state in _CANNOT_STOP:
            return f"No stacks of process {pid} while {_CANNOT_STOP[state]}: {words}.", True
        return f"py-spy failed on process {pid}: {words}.", True

    def _forbidden(self, pid: int) -> str:
        """The obstacle of tracing, and how to remove it."""
        found = ptrace_access.check(pid, self._proc)
        if found.is_allowed:
            return f"Process {pid} could not be traced for a moment."
        fix = f": {found.fix}" if found.fix else ""
        return f"No stacks of process {pid}: {found.reason}{fix.removesuffix(', ...')}."

    def _failed(self, process: ProcessId, problem: str, cost_s: float | None = None) -> StacksTaken:
        """No stacks, with the reason."""
        return StacksTaken(
            process,
            self._clock(),
            "py-spy",
            cost_s=cost_s,
            problem=problem,
            has_stopped=False,
        )


def _keep(moments: dict[ProcessId, float], process: ProcessId, at_s: float) -> None:
    """Keep a moment of a process; the table stays bounded."""
    _make_room(moments)
    moments[process] = at_s


def _make_room(kept: dict[ProcessId, float] | set[ProcessId]) -> None:
    if len(kept) >= _KEPT:
        kept.clear()


def find_py_spy() -> str | None:
    """Path of py-spy: beside this Python, in its environment, beside mpwatch, or on PATH.

    `pip install --target`, and with it a single file made by shiv, has programs in the folder `bin`
    beside the packages.
    """
    packages = os.path.abspath(__file__).rpartition(f"{os.sep}mpwatch{os.sep}")[0]
    beside = os.path.join(packages, "bin")
    for folder in (os.path.dirname(sys.executable), os.path.join(sys.prefix, "bin"), beside):
        path = os.path.join(folder, "py-spy")
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    found = shutil.which("py-spy")
    return found and os.path.abspath(found)


def parse_dump(process: ProcessId, at_s: float, output: bytes) -> tuple[StackSample, ...]:
    """The threads in the output of `py-spy dump --json` (0.4), main thread first.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: It is not such output.
    """
    threads = json.loads(output)
    for thread in threads:
        # Before Python 3.11 py-spy finds the number of a thread only by a stop.
        if thread["os_thread_id"] is None and thread["thread_name"] == "MainThread":
            thread["os_thread_id"] = thread["pid"]
    stacks = [_stack(process, at_s, thread) for thread in threads if thread["pid"] == process.pid]
    return tuple(sorted(stacks, key=lambda stack: stack.tid or 0))


def _stack(process: ProcessId, at_s: float, thread: dict[str, Any]) -> StackSample:
    """One thread."""
    mixed = thread["frames"]
    has_native = any(map(_is_native, mixed))
    python = [f for f in mixed if not _is_native(f)] if has_native else mixed
    python = python[:FRAMES_LIMIT]
    return StackSample(
        process=process,
        tid=_whole(thread["os_thread_id"]),
        thread_name=_text(thread["thread_name"]),
        frames=_frames(python),
        source="py-spy",
        at_s=at_s,
        is_active=thread["active"] is True,
        has_gil=thread["owns_gil"] is True,
        target_class=_target_class(python),
        mixed=_mixed(mixed[:FRAMES_LIMIT]) if has_native else (),
    )


def _is_native(frame: dict[str, Any]) -> bool:
    """Whether a frame is of native code: py-spy names the library or program only of such (0.4)."""
    return frame.get("module") is not None


def _mixed(frames: Sequence[dict[str, Any]]) -> tuple[MixedFrame, ...]:
    """All frames of one thread that has native frames among them."""
    return tuple(MixedFrame(_frame(frame), _is_native(frame)) for frame in frames)


def _frames(frames: Sequence[dict[str, Any]]) -> tuple[Frame, ...]:
    """The frames of one thread; before Python 3.11 native code calls every function."""
    found = tuple(map(_frame, frames))
    if all(frame.from_native for frame in found):
        return tuple(frame._replace(from_native=False) for frame in found)
    return found


def _target_class(frames: Sequence[dict[str, Any]]) -> str:
    """`Worker` where the frame that multiprocessing has called is `Worker.run`; empty otherwise."""
    for inner, frame in pairwise(frames):
        if not frame["filename"].endswith("/multiprocessing/process.py"):
            continue
        if frame["name"].rpartition(".")[2] == "_bootstrap":
            *around, function = inner["name"].split(".")
            is_method = bool(around) and function == "run" and around[-1] != "<locals>"
            is_own = not inner["filename"].endswith("/multiprocessing/process.py")
            return _text(around[-1]) if is_method and is_own else ""
    return ""


def _frame(frame: dict[str, Any]) -> Frame:
    """One frame; a function has its plain name, as in the stacks of the hook."""
    name, file = frame["name"], frame["filename"]
    # From Python 3.11 on py-spy says `Queue.get`; native names may hold dots of their own.
    if file.endswith(".py") or file.startswith("<"):
        name = name.rsplit(".", 1)[-1]
    line = _whole(frame["line"]) or 0
    # Python 3.11 marks such a frame; from 3.12 on one of the interpreter itself is below it.
    native = frame.get("is_entry") is True or frame.get("is_shim_entry") is True
    return Frame(_text(name), _text(file, 1024), line, _locals(frame["locals"] or ()), native)


def values_in(taken: StacksTaken, wanted: Sequence[WantedFrame]) -> ValuesRead:
    """The values of local variables in stacks that have them; attributes are not in these."""
    found = []
    for each in wanted:
        frame = next(
            (
                frame
                for stack in taken.stacks
                if stack.tid == each.tid
                for frame in stack.frames
                if (frame.file, frame.function) == (each.file, each.function)
            ),
            None,
        )
        if frame is not None:
            shown = dict(frame.locals)
            values = tuple(_value(name, shown[name]) for name in each.names if name in shown)
            found.append(FrameValues(each.tid, each.file, each.function, frame.line, values))
    return ValuesRead(taken.process, taken.at_s, taken.source, tuple(found))


_OBJECT = re.compile(r"<([\w.]{1,80}) at 0x[0-9a-f]+>")
_BEGINS = {'"': "str", "'": "str", "[": "list", "{": "dict", "(": "tuple"}


def _value(name: str, shown: str) -> NameValue:
    """A value as py-spy shows it (0.4): of texts only that they are, of lists whether empty."""
    if shown == "None":
        return NameValue(name, "NoneType")
    if shown in ("True", "False"):
        return NameValue(name, "bool", shown == "True")
    if re.fullmatch(r"-?\d{1,18}", shown):
        return NameValue(name, "int", int(shown))
    if re.fullmatch(r"-?\d{1,40}\.\d{1,40}(?:e[-+]?\d{1,3})?", shown):
        return NameValue(name, "float", float(shown))
    found = _OBJECT.fullmatch(shown)
    kind = found[1].rpartition(".")[2] if found is not None else _BEGINS.get(shown[:1], "object")
    return NameValue(name, kind, length=0 if shown in ("[]", "{}", "()") else None)


def _locals(found: Sequence[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Names and shortened reprs."""
    return tuple(
        (_text(each["name"]), _text(each["repr"], REPR_LIMIT)) for each in found[:LOCALS_LIMIT]
    )


def _text(value: object, limit: int = NAME_LIMIT) -> str:
    """A cleaned text; empty for none.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, str | None):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return clean(value or "", limit)


def _whole(value: object) -> int | None:
    """A whole number of at most 64 bits, or none.

    Raises:
        TypeError: It is something else.
    """
    if value is not None and (type(value) is not int or not -1 << 63 <= value < 1 << 63):
        raise TypeError(f"a whole number expected, not {type(value).__name__}")
    return value
