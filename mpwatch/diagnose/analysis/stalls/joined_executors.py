"""What keeps the end or a result of a thread pool from coming: in words, and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import at_frame, frame_words, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, at_line
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.diagnose.analysis.waits.edges import is_busy
from mpwatch.diagnose.analysis.waits.threads import (
    JoinedBy,
    JoinedExecutor,
    joined_executor,
    purpose,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark


class JoinedWords(Struct, frozen=True):
    """What a process does that waits for the threads of a pool, and why that does not end."""

    by: JoinedBy
    what: str
    """`waits at the end of asyncio.run at main.py:23 step for its thread asyncio_0, which ...`."""
    evidence: tuple[str, ...]
    cause: str
    advice: str


@derived
def joined_words(index: Index, identity: ProcessId) -> JoinedWords | None:
    """Why a process does not get past its wait for a thread pool; `None` if it waits for none."""
    process, joined = index.snapshot.get(identity), joined_executor(index, identity)
    if process is None or joined is None:
        return None
    first, *more = joined.running
    name, at = called(process), at_line(main_thread(process))
    also = f" and {len(more)} more" if more else ""
    which = f" for its thread {first.name}{also}, which"
    if joined.by == "result":
        which = f": its thread {first.name}"
    submitted = _submitted(index, first)
    given = f"; {mark_words(submitted)} has given it that call" if submitted is not None else ""
    return JoinedWords(
        joined.by,
        f"waits{at} {_END[joined.by]}{which} {_doing(first)}",
        tuple(_evidence(index, process, joined, submitted)),
        (
            f"{name} itself computes nothing: its main thread waits{at} {_END[joined.by]}. "
            f"{_JOINS[joined.by]} Thread {first.name} is still in a call: it {_doing(first)}"
            f"{given}. {_LIMITS[joined.by]}"
        ),
        _ADVICE[joined.by],
    )


def _doing(thread: Thread) -> str:
    """`computes at evaluator.py:26 _stage1`, with the code without a file that this has called."""
    frame = user_frame(thread.stack)
    at = at_frame(frame)
    inner = _without_file(thread)
    within = f" (in {frame_words(inner)})" if inner is not None else ""
    if is_busy(thread):
        return f"computes{at}{within}"
    wait = thread.waits_on
    if wait is not None and wait.kind == "timer":
        return f"sleeps{at}{within}"
    if wait is not None and wait.kind == "futex":
        return f"waits {purpose(thread)}{at}{within}"
    return f"waits{at}{within}"


def _without_file(thread: Thread) -> Frame | None:
    """The innermost frame of code that the program has made itself, by exec()."""
    own = own_frames(thread.stack)
    found = own[0] if own else None
    if found is None or not found.file.startswith("<") or found.file.startswith("<frozen "):
        return None
    return found


def _evidence(
    index: Index, process: Process, joined: JoinedExecutor, submitted: Mark | None
) -> Iterator[str]:
    for thread in joined.running[:NAMED]:
        way = " <- ".join(map(frame_words, program_frames(thread.stack)[:NAMED]))
        yield f"thread {thread.name} of {called(process)} {_doing(thread)}; its calls: {way or '-'}"
    if submitted is not None:
        yield f"submitted by {mark_words(submitted)}"
    for other in index.snapshot.living():
        if other is not process and (found := joined_executor(index, other.process)) is not None:
            first = found.running[0]
            yield (
                f"so does {called(other)}{at_line(main_thread(other))}: its thread {first.name} "
                f"{_doing(first)}"
            )


_GIVEN = re.compile(
    r"\.(?:submit|apply_async|map_async|starmap_async|to_thread)\(\s*([\w.]+)"
    r"|\.run_in_executor\(\s*[\w.]+\s*,\s*([\w.]+)"
)
_OF_LOOPS = re.compile(r"\.(?:run_in_executor|to_thread)\(")


def _submitted(index: Index, thread: Thread) -> Mark | None:
    """The statement that gave a thread its call: the one that names the function, or the only one.

    For the default executor of a loop only such statements count.
    """
    frames = program_frames(thread.stack)
    if not frames:
        return None
    function = frames[-1].function.rpartition(".")[2]
    found: Sequence[Mark] = [*marks(index, "submits"), *marks(index, "runs-in-thread")]
    if thread.name.startswith("asyncio"):
        found = [each for each in found if _OF_LOOPS.search(each.statement.text)]
    named = [each for each in found if function in _names_given(each.statement.text)]
    if named:
        return named[0] if len(named) == 1 else None
    # A variable may be any function.
    return found[0] if len(found) == 1 else None


def _names_given(text: str) -> set[str]:
    """The functions that a statement submits, without what they are attributes of."""
    return {name.rpartition(".")[2] for groups in _GIVEN.findall(text) for name in groups if name}


_END: Mapping[JoinedBy, str] = {
    "asyncio": "at the end of asyncio.run",
    "shutdown": "at the end of a ThreadPoolExecutor",
    "exit": "at the end of the program",
    "result": "for the result of a call in a thread pool",
}
_JOINS: Mapping[JoinedBy, str] = {
    "asyncio": (
        "Before it returns what the coroutine has returned, asyncio.run joins all threads of the "
        "default executor of its loop (shutdown_default_executor); from Python 3.12 on it gives up "
        "after 5 minutes."
    ),
    "shutdown": "shutdown() and the end of a with block join all threads of the executor.",
    "exit": "Before Python exits, it joins all threads of concurrent.futures.",
    "result": "Only the thread that has the call can give its result.",
}
_NO_LIMIT = (
    "Python cannot end a thread: a time limit of a wait (asyncio.wait_for, result(timeout=...)) "
    "and cancel() end only the wait for it, and the call goes on."
)
_LIMITS: Mapping[JoinedBy, str] = {
    "asyncio": _NO_LIMIT,
    "shutdown": f"{_NO_LIMIT} An exception that leaves a with block waits for it, too.",
    "exit": _NO_LIMIT,
    "result": _NO_LIMIT,
}
_IN_A_PROCESS = (
    "Run what may not end in a process of its own that is ended at its time limit (terminate() or "
    "kill() of multiprocessing.Process), or let the call itself check a deadline or an Event in "
    "its loop, and give what it waits for a timeout."
)
_ADVICE: Mapping[JoinedBy, str] = {
    "asyncio": (
        f"{_IN_A_PROCESS} An executor of your own with shutdown(wait=False) only lets asyncio.run "
        "return: the call goes on, and Python joins it at its end. Another time limit for the "
        "await, more workers or a restart do not help."
    ),
    "shutdown": (
        f"{_IN_A_PROCESS} shutdown(wait=False, cancel_futures=True) in place of the with block "
        "lets this thread go on, but the call goes on as well, and Python joins it at its end."
    ),
    "exit": _IN_A_PROCESS,
    "result": (
        "Nothing is wrong if that call is meant to take so long. Else bound what it is given (the "
        "length of a text, the size of a number) before it begins. "
        f"{_IN_A_PROCESS} More workers do not end it; nor does signal.alarm(), whose handler runs "
        "in the main thread only."
    ),
}
