"""A finalizer receives or sends a tensor while its thread holds the lock of SharedCache."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import innermost, threads_calling
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame

RULE = "sharedcache-lock-reentry"
_LOCKED = frozenset(("get", "__setitem__", "free_dead_references"))
_TAKES_IT = tuple(f"reductions.py:{name}" for name in sorted(_LOCKED))


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each thread that waits for SharedCache's lock and holds it itself."""
    for process, thread in threads_calling(index, *_TAKES_IT):
        frames = tuple(own_frames(thread.stack))
        inside = [index for index, frame in enumerate(frames) if _is_locked(frame)]
        if len(inside) < 2 or thread.state == "R":
            continue
        between = frames[inside[0] + 1 : inside[-1]]
        via = innermost(between, ":__del__") or next(
            (f for f in between if not f.file.endswith("reductions.py")), None
        )
        if via is None:
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=process.process,
            tid=thread.tid,
            summary=f"{called(process)} waits for a lock that the same thread holds",
            evidence=(
                f"thread {thread.name} waits in {frame_words(frames[inside[0]])}, and holds the "
                f"lock since {frame_words(frames[inside[-1]])}",
                f"in between it called {frame_words(via)}",
            ),
            cause=(
                "torch protects its table of shared storages with a lock that a thread cannot take "
                "twice. A finalizer or signal handler ran while the thread held the lock, and "
                "received or sent a tensor itself. The thread waits for ever."
            ),
            advice=(
                "Restart the process. Do not send or receive tensors in __del__, weakref callbacks "
                "or signal handlers: set a flag there, and do the work in the main loop."
            ),
        )


def _is_locked(frame: Frame) -> bool:
    """Whether a frame is of one of the functions that take SharedCache's lock."""
    return frame.function.rsplit(".", 1)[-1] in _LOCKED and frame.file.endswith("reductions.py")
