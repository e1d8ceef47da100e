"""The resource tracker still runs after main was killed or crashed."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted, of_role
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.units import seconds_text

RULE = "resource-tracker-leaks"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each tracker whose main process was killed or crashed.

    After a normal exit of main the tracker runs for a moment longer; that is not reported.
    """
    for tracker in of_role(index.snapshot, "resource-tracker"):
        main = index.snapshot.get(tracker.parent or tracker.original_parent)
        if main is None or main.ended is None:
            continue
        if death_of(main.ended) not in ("killed", "crash", "unknown"):
            continue
        semaphores = sum(
            segment.kind == "semaphore" and segment.is_linked for segment in index.snapshot.segments
        )
        yield Finding(
            rule=RULE,
            severity=Severity.INFO,
            process=tracker.process,
            summary=(
                f"{called(main)} exited without cleaning up ({main.ended.words}); "
                f"{called(tracker)} will remove what is left"
            ),
            evidence=(
                f"{called(main)} ended: {main.ended.words}",
                f"the tracker still runs "
                f"{seconds_text(index.snapshot.at_s - main.ended.at_s)} later",
                *((f"{counted(semaphores, 'named semaphore')} left",) if semaphores else ()),
            ),
            cause=(
                "Main did not run its finalizers. The tracker removes its leftover objects when "
                "the last process that holds the tracker's pipe has exited, and then prints 'There "
                "appear to be leaked semaphore objects': a symptom of main's exit, not its cause."
            ),
            advice=(
                "Find out how main exited. Do not kill the tracker: the objects would stay in "
                "/dev/shm. Stop jobs with SIGTERM, so that they clean up themselves."
            ),
        )
