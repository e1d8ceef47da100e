"""Setting an event waits for a sleeper that was killed."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.deaths import violent_deaths_near
from mpwatch.diagnose.stack_shapes import calls, frame_words, own_frames, user_frame
from mpwatch.diagnose.stillness import quiet_s
from mpwatch.diagnose.tree import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text

RULE = "event-set-hangs"
STUCK_S = 6.0


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each thread that stands in `Condition.notify`.

    Sleepers answer within microseconds of being woken, so nothing healthy stays there.
    """
    for process in snapshot.living():
        for thread in process.threads:
            frames = own_frames(thread.stack)
            if not calls(frames, "synchronize.py:notify") or thread.state == "R":
                continue
            quiet = quiet_s(process, history)
            dead = violent_deaths_near(snapshot, process)
            if quiet is None or quiet < STUCK_S:
                continue
            user = user_frame(frames)
            at = "" if user is None else f", from {frame_words(user)}"
            yield Finding(
                rule=RULE,
                severity=Severity.CRITICAL,
                process=process.process,
                tid=thread.tid,
                summary=f"{called(process)} hangs while it wakes others: one of them is dead",
                evidence=(
                    f"in Condition.notify for {seconds_text(quiet)}{at}",
                    *(f"{called(p)} ended: {p.ended.words}" for p in dead[:3] if p.ended),
                ),
                cause=(
                    "Condition.notify and Event.set wait until every sleeper has said that it woke "
                    "up. One that was killed in its sleep never does."
                ),
                advice=(
                    "Let others poll a shared Value, or wait with a time limit, or use a pipe, "
                    "which shows the end of its other side. Replace the Event after a crash. This "
                    "process has to be restarted."
                ),
            )
