"""Exited children accumulate as zombies because their parent does not reap them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mpwatch.diagnose.analysis.forecast import growth
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.units import seconds_text

RULE = "zombie-processes"
MANY = 5
VERY_MANY = 50
LASTING_S = 10.0


def check(index: Index) -> Iterator[Finding]:
    """Yield one finding when `MANY` zombies have existed for `LASTING_S`.

    One or two zombies between an exit and its join are normal.
    """
    series = index.history.of_host("zombies")
    if not series or series[-1].value < MANY:
        return
    recent = [point.value for point in series if point.at_s >= series[-1].at_s - LASTING_S]
    if series[-1].at_s - series[0].at_s < LASTING_S or min(recent) < MANY:
        return
    count = int(series[-1].value)
    parents = Counter(
        p.sample.parent_pid for p in index.snapshot.processes if p.sample.state == "Z"
    ).most_common(1)
    parent = next((p for p in index.snapshot.processes if parents and p.pid == parents[0][0]), None)
    who = "a process" if parent is None else called(parent)
    rising = growth(series)
    evidence = [f"{count} zombies now; {MANY} or more for {seconds_text(LASTING_S)}"]
    if rising is not None:
        evidence.append(f"{rising.gained:.0f} more within {seconds_text(rising.span_s)}")
    cgroup = index.snapshot.host.cgroup
    if cgroup is not None and cgroup.pids_limit and cgroup.pids_current:
        evidence.append(f"{cgroup.pids_current} of {cgroup.pids_limit} pids in use")
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING if rising is not None or count >= VERY_MANY else Severity.INFO,
        process=None if parent is None else parent.process,
        summary=f"{who} has not reaped {count} exited child processes",
        evidence=tuple(evidence),
        cause=(
            "A child that has exited stays as a zombie until its parent reads the exit code, by "
            "join(), active_children(), or starting another process. A blocked main process never "
            "does. In a container, process 1 has to reap orphans, and does not unless it is an "
            "init program."
        ),
        advice=(
            "Join each process that was started (a with-statement, or call active_children() at "
            "intervals); in a container, run an init (docker run --init). Zombies use pids, but "
            "no memory."
        ),
    )
