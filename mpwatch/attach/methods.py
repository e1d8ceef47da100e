"""The ways to make a target run the stub, best first, each with what speaks against it here."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

from mpwatch.attach import interpreter, pending_call, rights, room, stub, their_python, tracer
from mpwatch.attach.interpreter import Interpreter
from mpwatch.attach.outcome import Refused
from mpwatch.attach.parcel import Parcel
from mpwatch.attach.target import Target, read_target
from mpwatch.attach.this_machine import this_machine
from mpwatch.attach.tracer import Step, no_step
from mpwatch.model.ids import ProcessId

Rest = Callable[[], contextlib.AbstractContextManager[None]]

REMOTE_EXEC_WITHIN_S = 10.0
STARTED_WITHIN_S = 1.0
_STARTING_S = 0.02
# One target at a time stands still, so that none waits for our own threads to take turns.
_STOPPING = threading.Lock()


class Visit:
    """One attempt with one target, and what was found out about it so far."""

    def __init__(
        self,
        target: Target,
        step: Step = no_step,
        rest: Rest = contextlib.nullcontext,
    ) -> None:
        self.target = target
        self.step = step
        self.rest = rest
        self.text_at: int | None = None
        """Where in its memory the text for a pending call was put."""

    def look_again(self) -> None:
        """Read anew what may have changed about the target.

        Raises:
            Refused: It has ended.
        """
        self.target = read_target(self.target.process)

    @cached_property
    def interpreter(self) -> Interpreter:
        """Its Python.

        Raises:
            Refused: It has none that can be recognised.
        """
        try:
            return interpreter.find(self.target.pid)
        except PermissionError:
            found = rights.check(self.target.pid)
            raise Refused(found.reason or "its mappings are hidden from us", found.fix) from None
        except OSError:
            raise Refused("the process ended during the attempt") from None


class Method(Protocol):
    """One way."""

    name: str

    def check(self, visit: Visit) -> None:
        """Find out whether it can be used.

        Raises:
            Refused: It cannot; the message says why.
        """
        ...

    def deliver(self, visit: Visit, parcel: Parcel) -> float | None:
        """Make the target look for its parcel.

        Returns:
            Seconds for which its main thread stood still; `None` if it never did.

        Raises:
            Refused: It went wrong; the target is as it was.
        """
        ...


class RemoteExec:
    """`sys.remote_exec` of PEP 768, called by the target's own interpreter: versions must agree."""

    name = "remote_exec"

    def check(self, visit: Visit) -> None:
        """Python >= 3.14 that shares our files and was not told to refuse."""
        target, version = visit.target, visit.interpreter.version
        if version is None or version < (3, 14):
            raise Refused("sys.remote_exec came with Python 3.14")
        _require_gil(visit.interpreter)
        if target.environment.get("PYTHON_DISABLE_REMOTE_DEBUG"):
            raise Refused("PYTHON_DISABLE_REMOTE_DEBUG is set in it")
        their_python.check(target)
        _require_rights(target)

    def deliver(self, visit: Visit, parcel: Parcel) -> float | None:
        """Run its interpreter for a moment."""
        target = visit.target
        code = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
        script = f"{parcel.path}/{stub.SCRIPT_NAME}"
        try:
            done = their_python.run(
                target, code, str(target.pid), script, within_s=REMOTE_EXEC_WITHIN_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refused(f"its interpreter could not be run: {error}") from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason"]
            raise Refused(f"sys.remote_exec refused: {lines[-1][:300]}")
        return None


class PendingCall:
    """`Py_AddPendingCall`, called by the target's main thread on loan: see `pending_call`."""

    name = "pending call"

    def check(self, visit: Visit) -> None:
        """CPython >= 3.10 with a GIL, a thread that can be stopped, and the right to do so."""
        this_machine()
        with contextlib.suppress(tracer.Unavailable):
            tracer.start()  # it gets ready meanwhile
        target = visit.target
        _require_stoppable(target)
        _require_rights(target)
        if target.has_shadow_stack:
            raise Refused(
                "a shadow stack guards its returns, so no call can be lent to it",
                "unset GLIBC_TUNABLES=glibc.cpu.x86_shstk before starting it",
            )
        version = visit.interpreter.version
        if version is None or version < (3, 10):
            shown = "an unknown version" if version is None else f"{version[0]}.{version[1]}"
            raise Refused(f"its Python is {shown}; mpwatch supports 3.10 and later")
        _require_gil(visit.interpreter)

    def deliver(self, visit: Visit, parcel: Parcel) -> float | None:
        """Put the text into the target and queue the call, on a thread that ends with it."""
        try:
            memory = room.TargetMemory(visit.target.pid)
        except OSError as error:
            raise Refused(f"its memory cannot be opened: {error.strerror}") from error
        try:
            tracer.require_same(visit.target.process)
            text_at = room.find_room(visit.target.pid, visit.interpreter.modules, memory, stub.TEXT)
            visit.text_at = text_at
            memory.write(text_at, stub.TEXT)
            plan = pending_call.prepare(visit.interpreter, this_machine(), memory, text_at)
            visit.step("text written")
            return _queue(visit.target.process, tracer.travelling(plan), visit.step)
        except ProcessLookupError:
            raise Refused("the process ended during the attempt") from None
        except OSError as error:
            # We had the right a moment ago, so it is a tracer that came in between.
            passes = error.errno == errno.EPERM
            raise Refused(f"it could not be borrowed: {error}", passes=passes) from error
        finally:
            memory.close()


METHODS: tuple[Method, ...] = (RemoteExec(), PendingCall())
"""In order of preference; before them the hook may be there already, after them is observing."""


def clear_text(pid: int, text_at: int | None = None) -> None:
    """Remove what a pending call has left in the target; what cannot be reached stays.

    Args:
        pid: The target.
        text_at: Where the text was put; it is looked for if that is not known.
    """
    try:
        memory = room.TargetMemory(pid)
    except OSError:
        return
    try:
        room.clear(pid, memory, stub.TEXT, text_at)
    except OSError:
        return
    finally:
        memory.close()


def _queue(process: ProcessId, plan: pending_call.Plan, step: Step) -> float:
    """Queue the call as soon as the interpreter has started."""
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while True:
        try:
            with _STOPPING:
                return _queue_once(process, plan, step)
        except pending_call.NotReady:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_STARTING_S)


def _queue_once(process: ProcessId, plan: pending_call.Plan, step: Step) -> float:
    """Queue the call from the tracer, or from here where only this process may trace the target.

    Under Yama's scope 1 that is an ancestor of it, or one that it named (PR_SET_PTRACER).
    """
    try:
        return tracer.start().queue(process, plan, step)
    except tracer.Unavailable:
        return tracer.queue_here(process, plan, step)
    except PermissionError:
        return tracer.queue_here(process, plan, step)


def _require_gil(found: Interpreter) -> None:
    """Refuse a free-threaded build.

    The hook's ring and its patches rest on the GIL; besides, a thread that is stopped there may
    hold the lock around the pending calls in code that has no symbol.
    """
    if found.is_free_threaded:
        raise Refused(
            "its Python is free-threaded, which the hook does not support",
            "run the job with a Python that has the GIL (python3.N, not python3.Nt)",
        )


def _require_rights(target: Target) -> None:
    """Refuse where we may not attach, saying all that is missing."""
    if rights.may_attach(target.pid):
        return
    found = rights.check(target.pid)
    if not found.is_allowed:
        raise Refused(found.reason, found.fix, passes=found.passes)


def _require_stoppable(target: Target) -> None:
    """Refuse what ptrace would wait for, or could leave in another state than before."""
    if target.state == "T":
        raise Refused("it is stopped", f"kill -CONT {target.pid}")
    if target.state == "t":
        raise Refused(
            f"process {target.tracer_pid} has stopped it for debugging",
            "end that debugger first",
            passes=True,
        )
    if target.state == "D":
        raise Refused("its main thread is in uninterruptible sleep (state D)", passes=True)
