"""A Pool waits for a task whose worker died."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.deaths import death_of
from mpwatch.diagnose.stack_shapes import frame_words, own_frames, shape_of, user_frame
from mpwatch.diagnose.stillness import quiet_s, stands
from mpwatch.diagnose.tree import called, children_started_by
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "pool-hang-after-worker-death"
STUCK_S = 6.0


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process that waits for a Pool's result after a worker's death.

    The Pool has replaced the worker, so nothing looks wrong: all its workers are idle. While any of
    them works, the result may be on its way.
    """
    if not any(_died_hard(process) for process in snapshot.processes):
        return
    for process in snapshot.living():
        waits = [t for t in process.threads if shape_of(t.stack) == "pool-result"]
        quiet = quiet_s(process, history)
        if not waits or quiet is None or quiet < STUCK_S:
            continue
        children = list(children_started_by(snapshot, process))
        dead = [p for p in children if _died_hard(p)]
        living = [p for p in children if not p.is_gone and p.role in ("spawned", "pool-worker")]
        if not dead or not all(stands(p, history, STUCK_S / 2) for p in living):
            continue
        frame = user_frame(own_frames(waits[0].stack))
        at = "" if frame is None else f", at {frame_words(frame)}"
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=process.process,
            summary=f"{called(process)} waits for a Pool task whose worker died",
            evidence=(
                f"in ApplyResult.wait for {seconds_text(quiet)}{at}",
                *(f"{called(p)} ended: {p.ended.words}" for p in dead[:3] if p.ended),
                f"{len(living)} workers of it live and do nothing",
            ),
            cause=(
                "A Pool replaces a worker that died, but not the task that died with it. Its "
                "result never comes, and get() without a timeout waits for ever."
            ),
            advice=(
                "Use concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool, or "
                "get(timeout=...) and submit again, which needs tasks that may run twice. Find why "
                "the worker died: see the other findings."
            ),
        )


def _died_hard(process: Process) -> bool:
    """Whether it was killed, crashed, or left with an error."""
    return process.ended is not None and death_of(process.ended) in ("killed", "crash", "failed")
