"""Calls of torch.distributed.rpc that are not answered: which wait, and which process has them.

A process runs the calls of others in the threads of one pool of native code, `pt_thread_pool`. The
same threads complete its own calls, so that a call which waits in such a thread for another one
needs a second thread. Stacks show both: `_run_function` has called what was asked for (torch 2.1 to
2.13; the name of the pool's threads is seen in 2.13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, at_line
from mpwatch.diagnose.analysis.process_queries import all_called, called, counted
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s, is_busy
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.waits import RPC_THREAD

_RUNS = "torch/distributed/rpc/internal.py:_run_function"
_WAITS = (
    "torch/distributed/rpc/api.py:rpc_sync",
    "torch/distributed/rpc/rref_proxy.py:_invoke_rpc",
    "torch/futures/__init__.py:wait",
)
_HERE = ".to_here("
"""Waits for the value of an RRef in native code, without a frame of its own."""


class Call(NamedTuple):
    """A thread in a call of torch.distributed.rpc."""

    process: Process
    thread: Thread

    @property
    def function(self) -> str:
        """What was asked for by the other process: the outermost function of the program."""
        frames = program_frames(self.thread.stack)
        return f"{frames[-1].function.rpartition('.')[2]}()" if frames else "a call"

    @property
    def at(self) -> str:
        """`server.py:51 tune`."""
        frame = user_frame(self.thread.stack)
        return frame_words(frame) if frame is not None else "an unknown line"


class UnansweredCalls(Struct, frozen=True):
    """Calls for whose answers processes wait, and none comes."""

    callers: Sequence[Process]
    """Those whose main threads wait."""
    nested: Sequence[Call]
    """Those in the threads of a process' pool, all of which wait for further calls."""
    for_s: float
    headline: str
    evidence: tuple[str, ...]
    cause: str
    advice: str


def unanswered_calls(index: Index, at_least_s: float) -> UnansweredCalls | None:
    """The calls that are not answered, as no process of the job runs one that could get on.

    Args:
        index: The snapshot.
        at_least_s: For how long they have waited.
    """
    callers = _callers(index)
    served = _served(index)
    pools = [
        (process, thread)
        for process in index.snapshot.living()
        for thread in process.threads
        if thread.name == RPC_THREAD
    ]
    if any(is_busy(thread) or not _is_blocked(thread) for _, thread in (*pools, *served)):
        return None  # some call is at work, or sleeps
    waiting = [main for each in callers if (main := main_thread(each)) is not None]
    times = [blocked_for_s(each) or 0.0 for each in (*waiting, *(c.thread for c in served))]
    for_s = min(times, default=0.0)
    if for_s < at_least_s:
        return None
    nested = _without_a_free_thread(index, served)
    if nested:
        return _nested(index, callers, nested, for_s)
    others = {process.process for process, _ in pools} | {c.process.process for c in served}
    if not callers or not others - {callers[0].process}:
        return None  # what serves it is not in this job
    if any(is_busy(main) for each in others if (main := _main_of(index, each)) is not None):
        return None  # it may call what the others wait for
    return _stalled(index, callers, served, for_s)


def _main_of(index: Index, identity: ProcessId) -> Thread | None:
    process = index.snapshot.get(identity)
    return main_thread(process) if process is not None else None


@derived
def _served(index: Index) -> tuple[Call, ...]:
    """The calls that processes run for others."""
    return tuple(
        Call(process, thread)
        for process in index.snapshot.living()
        for thread in process.threads
        if calls(own_frames(thread.stack), _RUNS)
    )


@derived
def _callers(index: Index) -> tuple[Process, ...]:
    """The processes whose main threads wait for a call."""
    return tuple(
        process
        for process in index.snapshot.living()
        if (main := main_thread(process)) is not None
        and _is_blocked(main)
        and _waits_for_a_call(index, main)
    )


def _waits_for_a_call(index: Index, thread: Thread) -> bool:
    frames = own_frames(thread.stack)
    if any(calls(frames, each) for each in _WAITS):
        return True
    frame = user_frame(thread.stack)
    line = source_of(index, frame) if frame is not None and frames[0] == frame else None
    return line is not None and _HERE in line.statement.text


def _is_blocked(thread: Thread) -> bool:
    """Whether it waits for another thread of its process, as for an answer in native code."""
    return thread.waits_on is not None and thread.waits_on.kind == "futex"


def _without_a_free_thread(index: Index, served: Sequence[Call]) -> Sequence[Call]:
    """The calls of one process that have all threads of its pool, and wait for further calls."""
    for process in dict.fromkeys(each.process.process for each in served):
        own = [each for each in served if each.process.process == process]
        if not all(each in own or _waits_for_a_call(index, each.thread) for each in served):
            continue  # the call that it waits for may be in that one, and come back
        pool = {t.tid for t in own[0].process.threads if t.name == RPC_THREAD}
        has_all = pool == {each.thread.tid for each in own}
        if has_all and all(_waits_for_a_call(index, each.thread) for each in own):
            return own
    return ()


def _nested(
    index: Index, callers: Sequence[Process], nested: Sequence[Call], for_s: float
) -> UnansweredCalls:
    first, count = nested[0], len(nested)
    server, time = called(first.process), index.lasting(for_s)
    others = [each for each in callers if each.process != first.process.process]
    wait = "waits" if len(others) == 1 else "wait"
    held = f"; {all_called(others, NAMED)} {wait} for it" if others else ""
    threads = "its only thread" if count == 1 else f"each of its {count} threads"
    taken = (
        f"it runs {first.function} for another process in its only thread for remote calls"
        if count == 1
        else f"it runs {first.function} for another process, and all of its {count} threads for "
        "remote calls wait like this"
    )
    size = marks(index, "rpc-threads")
    is_set = f" The number of threads is set by {mark_words(size[0])}." if len(size) == 1 else ""
    return UnansweredCalls(
        callers,
        nested,
        for_s,
        (
            f"{server} has waited {time} for the answer to a remote call at {first.at}: {taken}, "
            f"so that none is left to receive the answer{held}"
        ),
        (
            *_lines(nested),
            *(f"{called(each)} waits{at_line(main_thread(each))}" for each in others[:NAMED]),
            "no process of the job works on a remote call, and none of those that wait has made "
            f"progress for {time}",
            *(f"{mark_words(each)} sets the number of threads" for each in size[:NAMED]),
        ),
        (
            f"{server} runs {first.function} for another process in {threads} for remote calls "
            f"({RPC_THREAD}), and waits there for the answer to a remote call of its own, at "
            f"{first.at}. torch.distributed.rpc receives answers in threads of the same pool, and "
            f"none is free, so this one never arrives. {first.function} never returns and keeps "
            "every lock that it has taken, and all other calls to this process stay in its queue."
            f"{is_set}"
        ),
        (
            f"Do not wait for a remote call in a function that is called remotely: let the caller "
            f"send what {first.function} asks for with its own call, or return a future "
            "(@rpc.functions.async_execution with rpc_async().then()). More threads "
            "(num_worker_threads of TensorPipeRpcBackendOptions) help as long as fewer such calls "
            "run at a time; a lock still keeps updates one by one. A longer rpc_timeout, more "
            "callers or a restart do not help."
        ),
    )


def _lines(found: Sequence[Call]) -> Iterator[str]:
    for each in found[:NAMED]:
        way = " <- ".join(map(frame_words, program_frames(each.thread.stack)[:NAMED]))
        yield f"{called(each.process)} runs {each.function} for another process: {way}"


def _stalled(
    index: Index, callers: Sequence[Process], served: Sequence[Call], for_s: float
) -> UnansweredCalls:
    names, time = all_called(callers, NAMED), index.lasting(for_s)
    have = "has" if len(callers) == 1 else "have"
    runs = f", and {called(served[0].process)} waits in one at {served[0].at}" if served else ""
    return UnansweredCalls(
        callers,
        (),
        for_s,
        (
            f"{names} {have} waited {time} for the answer to a remote call"
            f"{at_line(main_thread(callers[0]))}{runs or ', and no process works on one'}"
        ),
        (
            *(f"{called(each)} waits{at_line(main_thread(each))}" for each in callers[:NAMED]),
            *_lines(served),
            *(
                [
                    f"{counted(len(served), 'remote call')} of this job "
                    f"{'is' if len(served) == 1 else 'are'} in a function of the program"
                ]
                if served
                else []
            ),
        ),
        (
            f"{called(served[0].process)} has to return from {served[0].function}, which waits at "
            f"{served[0].at} for another thread of its process: a lock, an event, or the answer to "
            "a further call."
            if served
            else "No process of this job is in a function that was called remotely, so what is "
            "waited for is on its way, was lost, or is with a process of another machine."
        ),
        (
            "Look at the line of the function that was called: it must not wait for what only the "
            "caller, or another remote call to the same process, can do. Give rpc_sync() a "
            "timeout, which makes an error of the wait."
        ),
    )
