"""A circle of waits, or a wait nobody can end, that no other rule explains."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.stillness import quiet_s
from mpwatch.diagnose.waits import wait_graph
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitChain

RULE = "standing-still"
STANDING_S = 15.0


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each chain of waits without a way out that has stood for a while."""
    waits = snapshot.waits if snapshot.waits.edges else wait_graph(snapshot)
    for chain in waits.chains:
        if chain.verdict not in ("cycle", "dead-end"):
            continue
        stood = _stood_s(snapshot, history, chain)
        if stood is not None and stood >= STANDING_S:
            yield _finding(chain, stood)


def _stood_s(snapshot: Snapshot, history: History, chain: WaitChain) -> float | None:
    """How long every living member has not moved; `None` if any was not watched."""
    times: list[float] = []
    for link in chain.links:
        process = snapshot.get(link.process)
        if process is None or process.is_gone or process.sample.state == "Z":
            continue
        quiet = quiet_s(process, history)
        if quiet is None:
            return None
        times.append(quiet)
    return min(times, default=None)


def _finding(chain: WaitChain, stood_s: float) -> Finding:
    """Put it into words."""
    first, last = chain.links[0], chain.links[-1]
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=first.process,
        tid=first.tid,
        summary=f"{first.who} stands still and will not move by itself: {chain.conclusion}",
        evidence=(chain.sentence, f"nobody in it has moved for {seconds_text(stood_s)}"),
        cause=(
            "They wait for each other in a circle."
            if chain.verdict == "cycle"
            else f"What {first.who} waits for ends at {last.who}, and nobody can provide it."
        ),
        advice=(
            "Take the stacks of the processes named (mpwatch dump) to see the lines that wait. "
            "Ending the last one of the chain usually makes the others raise an error."
        ),
    )
