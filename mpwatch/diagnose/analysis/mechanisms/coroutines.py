"""Why a coroutine waits for ever, which is on no stack: from the source and what the threads do.

The loop waits for its wake-up socket. What ends the wait of a coroutine may have been called in
another thread, which does not write to that socket; or the task that was to do it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpwatch.describe.frames import own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import calls, own_threads, runs_event_loop, user_frame
from mpwatch.diagnose.analysis.waits.edges import is_busy
from mpwatch.diagnose.analysis.waits.futures import POOL_THREAD
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Statement, UnreadHow, UnreadTask, UnsafeWake


def unsafe_wake(index: Index, process: Process) -> Mechanism | None:
    """A call in another thread that a loop of a process, which waits without a limit, has not seen.

    Returns:
        `None` where the source shows no such call, or a thread has yet to come to it.
    """
    if any(each.process == process.process for each in index.entries("thread-died")):
        return None
    if not any(map(_waits_without_limit, process.threads)):
        return None
    files = _files_of(process)
    found = [
        each
        for each in index.snapshot.coroutines.unsafe
        if not files.isdisjoint((each.file, each.started_file, each.awaited_file))
        and _may_be_done(process, each)
    ]
    found.sort(key=lambda each: each.awaited is None)
    return _of_unsafe(process, found[0]) if found else None


def _waits_without_limit(thread: Thread) -> bool:
    """Whether a thread waits in an event loop of asyncio that no timer wakes up."""
    wait = thread.waits_on
    if wait is None or wait.kind != "poll" or wait.timeout_s is not None:
        return False
    return runs_event_loop(thread) and calls(own_frames(thread.stack)[:1], "selectors.py:select")


def _files_of(process: Process) -> frozenset[str]:
    """The files of the program that the stacks of a process have lines of."""
    return frozenset(f.file for each in process.threads for f in program_frames(each.stack))


def _may_be_done(process: Process, wake: UnsafeWake) -> bool:
    """Whether the thread may have made a call: it is past it, has come back, or has ended."""
    inside = [
        (thread, frame)
        for thread in process.threads
        for frame in thread.stack
        if (frame.file, frame.function) == (wake.file, wake.function)
    ]
    if wake.wakes_at_end and not inside:
        return False  # the loop was woken up when the function has returned
    return all(
        (wake.is_in_loop or frame.line >= wake.statement.line)
        and not is_busy(thread)
        and thread.waits_on is not None
        and thread.waits_on.kind != "timer"
        for thread, frame in inside
    )


def _of_unsafe(process: Process, wake: UnsafeWake) -> Mechanism:
    place, call = _place(wake.file, wake.statement, wake.function), f"{wake.name}.{wake.method}()"
    started = _place(wake.started_file, wake.started, wake.started_in)
    by = f"`{wake.started.text}` at {started} has a thread run {wake.function}()"
    if wake.started.text.startswith("def run("):
        by = f"{wake.function}() is run by a Thread of its own, see {started}"
    what = "a loop" if wake.kind == "loop" else _KINDS.get(wake.kind, "an object")
    made = f" (`{wake.made}`)" if wake.made else ""
    waits = ""
    if wake.awaited is not None:
        at = _place(wake.awaited_file, wake.awaited, wake.awaited_in)
        waits = f"A coroutine waits for it in `{wake.awaited.text}` at {at}. "
    return Mechanism(
        cause=(
            f"`{wake.statement.text}` at {place} runs in another thread than the event loop: {by}. "
            f"{wake.name} is {what} of asyncio{made}, and {wake.method}() of one does not wake up "
            f"a loop that waits in another thread: the loop sees it when something else wakes it "
            f"up. {waits}Most likely {call} was called while the loop waited, and nothing else "
            "wakes it up."
        ),
        advice=f"{_instead(wake)} {_DEBUG}",
        headline=(
            f"the event loop of {called(process)} is not woken up: most likely {call} at {place} "
            "was called in another thread without call_soon_threadsafe."
        ),
    )


_KINDS: Mapping[str, str] = {
    "Condition": "a Condition",
    "Event": "an Event",
    "Future": "a Future",
    "Queue": "a Queue",
    "Task": "a Task",
}
_DEBUG = (
    "With asyncio.run(..., debug=True) or PYTHONASYNCIODEBUG=1, such a call raises a RuntimeError "
    "where a coroutine waits."
)


def _instead(wake: UnsafeWake) -> str:
    """What to call in place of it."""
    name, method = wake.name, wake.method
    if wake.kind != "loop":
        rest = ", ..." if method in ("put_nowait", "set_exception", "set_result") else ""
        return (
            f"Call loop.call_soon_threadsafe({name}.{method}{rest}) there, where loop is what "
            "asyncio.get_running_loop() has given in the coroutine that waits; or let the "
            "coroutine await asyncio.to_thread(...) and use what that returns."
        )
    if method == "create_task":
        return f"Call asyncio.run_coroutine_threadsafe(..., {name}) there."
    if method == "call_soon":
        return f"Call {name}.call_soon_threadsafe(...) there."
    return f"Call {name}.call_soon_threadsafe({name}.{method}, ...) there."


# --- a task that has ended ------------------------------------------------------------------------


def unread_task(index: Index, process: Process) -> Mechanism | None:
    """The task that alone would end the wait of another coroutine, and most likely has ended.

    Only of a process whose loop nothing can wake up.
    """
    files = _files_of(process)
    found = [
        each
        for each in index.snapshot.coroutines.unread
        if not files.isdisjoint((each.file, each.started_file, each.awaited_file))
    ]
    found.sort(key=lambda each: each.waits is not None)
    if not found:
        return None
    task = found[0]
    at = _place(task.awaited_file, task.awaited, task.awaited_in)
    return Mechanism(
        cause=(
            f"As far as the source shows, only {task.coroutine}() ends the wait "
            f"`{task.awaited.text}` at {at}, by `{task.gives.text}` in line {task.gives.line}. "
            f"{_of_start(task)} {_state_of(task, may_be_in_thread=_runs_calls(index, process))}"
        ),
        advice=(
            f"Let the exception of {task.coroutine}() reach those that wait for it: start it in an "
            "asyncio.TaskGroup, or await it beside the wait by gather() without return_exceptions. "
            "Or catch exceptions in it, and pass them or an end mark on in a finally block. To see "
            "it, log task.exception() in a function that task.add_done_callback() gets."
        ),
        evidence=tuple(_other_tasks(found[1:])),
        headline=(
            f"the event loop of {called(process)} has nothing left to do: most likely a coroutine "
            f"waits at {at} for what only the task {task.coroutine}() does, which has ended"
            f"{' or waits as well' * (task.waits is not None)}."
        ),
    )


def _runs_calls(index: Index, process: Process) -> bool:
    """Whether a thread is in a call of the program, for which a coroutine may wait."""
    return any(
        user_frame(each.stack) is not None and not runs_event_loop(each)
        for each in own_threads(index, process)
        if not calls(own_frames(each.stack)[:1], POOL_THREAD)
    )


def _state_of(task: UnreadTask, *, may_be_in_thread: bool) -> str:
    """Whether a task has ended, as far as that follows."""
    if task.waits is not None:
        return (
            f"Either it has ended, by an exception or a return, or it waits itself in "
            f"`{task.waits.text}` of line {task.waits.line}."
        )
    left = "timer or connection" if may_be_in_thread else "timer, connection or call in a thread"
    return (
        f"There is no {left} for which it could wait: most likely it has ended, by an exception or "
        "a return."
    )


def _of_start(task: UnreadTask) -> str:
    """How it is started, and when its exception would be raised."""
    started = _place(task.started_file, task.started, task.started_in)
    start = f"It runs as a task, which `{task.started.text}` at {started} starts"
    if task.read is None:
        return f"{start}. {_READS[task.how]}"
    return f"{start}. {_READS[task.how].format(f'`{task.read.text}` in line {task.read.line}')}"


_READS: Mapping[UnreadHow, str] = {
    "dropped": (
        "Nothing keeps or awaits it: an exception ends it alone, and shows at most in standard "
        "error, as 'Task exception was never retrieved'."
    ),
    "kept": (
        "Nothing awaits it: an exception ends it alone, and shows at most when the task is freed, "
        "in standard error."
    ),
    "later": "Only {} would raise its exception, and that comes after the wait.",
    "together": "Its exception is kept until all tasks that {} awaits have ended.",
}


def _other_tasks(tasks: Sequence[UnreadTask]) -> Iterator[str]:
    """Further tasks of which the same may hold."""
    for each in tasks[:1]:
        at = _place(each.awaited_file, each.awaited, each.awaited_in)
        yield f"only the task {each.coroutine}() ends the wait at {at} as well"


def _place(file: str, statement: Statement, function: str) -> str:
    return f"{file.rpartition('/')[2]}:{statement.line} {function}"
