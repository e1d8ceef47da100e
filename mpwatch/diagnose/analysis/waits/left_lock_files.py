"""A lock file whose maker has ended: every process of the job waits until somebody removes it."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.blockages import stalled_s
from mpwatch.diagnose.analysis.waits.cases import Mechanism
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.file_locks import LOCK_FILE
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

LEFT_S = 10.0
NAMED = 3
_BATON = "torch/utils/file_baton.py:wait"


@derived
def waiting_for_left_lock(index: Index) -> tuple[Process, ...]:
    """The processes that wait for a lock file that no living process of the job can have made.

    Every other process of the job waits for one of them, and none has made progress for `LEFT_S`.
    """
    living = [each for each in index.snapshot.living() if each.role not in SERVICE_ROLES]
    edges = {edge.waiter: edge for edge in wait_graph(index).edges if edge.tid == edge.waiter.pid}
    waiting = [
        each for each in living if each.process in edges and edges[each.process].what == LOCK_FILE
    ]
    held_up = {each.process for each in waiting}
    others = [each for each in living if each.process not in held_up]
    while True:
        more = [each for each in others if _waits_for(index, each, held_up)]
        if not more:
            break
        held_up |= {each.process for each in more}
        others = [each for each in others if each not in more]
    is_still = all((stalled_s(each, index) or 0.0) >= LEFT_S for each in waiting)
    return tuple(waiting) if waiting and not others and is_still else ()


def _waits_for(index: Index, process: Process, held_up: set[ProcessId]) -> bool:
    """Whether the main thread of a process waits for some of these processes and for no other."""
    providers = {
        provider
        for edge in wait_graph(index).edges
        if edge.waiter == process.process and edge.tid == process.pid
        for provider in edge.providers
    } - {process.process}
    return bool(providers) and not providers.isdisjoint(held_up)


def killed_before(index: Index) -> tuple[Process, ...]:
    """The processes of the job that a signal has ended, which cannot have removed their files."""
    return tuple(
        each
        for each in index.snapshot.processes
        if each.ended is not None and each.ended.signal is not None
    )


def left_lock(index: Index) -> Mechanism | None:
    """Why the processes that wait for a lock file do not get it; `None` where some may have it."""
    waiting = waiting_for_left_lock(index)
    if not waiting:
        return None
    killed = killed_before(index)
    names, wait = all_called(waiting, NAMED), "waits" if len(waiting) == 1 else "wait"
    by = f"{all_called(killed, NAMED)} left when a signal ended it" if killed else ""
    return Mechanism(
        cause=(
            f"The lock is a file: {_maker(waiting)}, and removes it when it is done. Every process "
            "of this job waits for that, so none of them has made the file. "
            + (
                f"{all_called(killed, NAMED)} had it, most likely: a process that is killed does "
                "not reach the line that removes its file, not even one in a finally block."
                if killed
                else "Either one that was killed before it could remove the file has left it (by "
                "kill() or terminate() after a time limit, or by the kernel for lack of memory; "
                "not even a finally block runs then), or another job has it now."
            )
        ),
        advice=(
            f"Remove the file{_where(waiting)} if no other job is at work under it, and start the "
            "job again. Where the program kills a process that may have it, remove the file there "
            "too, before others look for it; or use a lock of flock() or filelock.FileLock, which "
            "the kernel releases when its holder ends."
        ),
        evidence=tuple(
            f"{called(each)} ended: {each.ended.words}"
            for each in killed[:NAMED]
            if each.ended is not None
        ),
        headline=(
            f"{names} {wait} for a lock file{_places(waiting)} that "
            f"{by or 'no living process of this job has made'}"
        ),
    )


def _maker(waiting: Sequence[Process]) -> str:
    """Which process makes the file, in the words of what they wait in."""
    if _is_baton(waiting):
        return "the process that builds an extension (torch's FileBaton) makes it"
    return "the process that has the lock makes it"


def _where(waiting: Sequence[Process]) -> str:
    """Where such a file is, as far as the library that waits says."""
    if _is_baton(waiting):
        return (
            " (`lock` in the directory of the build: for torch.utils.cpp_extension, below "
            "TORCH_EXTENSIONS_DIR or ~/.cache/torch_extensions)"
        )
    return ""


def _is_baton(waiting: Sequence[Process]) -> bool:
    thread = main_thread(waiting[0])
    return thread is not None and calls(own_frames(thread.stack), _BATON)


def _places(waiting: Sequence[Process]) -> str:
    """The lines at which they wait: ` at ops.py:48 load`."""
    threads = [thread for each in waiting if (thread := main_thread(each)) is not None]
    found = [frame for thread in threads if (frame := user_frame(thread.stack)) is not None]
    lines = dict.fromkeys(map(frame_words, found))
    return f" at {' and '.join(list(lines)[:NAMED])}" if lines else ""
