"""Ranks run on although their launcher is gone."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, counted
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "torchrun-agent-killed-orphans"
PATIENCE_S = 5.0
_ELASTIC = "TORCHELASTIC_RUN_ID"


def check(index: Index) -> Iterator[Finding]:
    """Yield one finding for all ranks that outlived the launcher that started them.

    Ranks started by another launcher than torchrun lack its variables and may be meant to run so.
    """
    left = [p for p in index.snapshot.living() if _is_left(index.snapshot, p)]
    if not left:
        return
    agent = index.snapshot.get(left[0].original_parent)
    run, their = ("runs", "its") if len(left) == 1 else ("run", "their")
    words = [f"{all_called(left)} still {run}, with parent {left[0].sample.parent_pid}"]
    if agent is not None and agent.ended is not None:
        since = seconds_text(index.snapshot.at_s - agent.ended.at_s)
        words.append(f"the launcher {agent.pid} ended {since} ago: {agent.ended.words}")
    else:
        words.append(f"no launcher is among {their} ancestors")
    sessions = {p.sample.session for p in left if p.sample.session is not None}
    if len(sessions) > 1:
        words.append(f"they are in {len(sessions)} sessions, so killing a group misses them")
    yield Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=left[0].process,
        summary=f"{counted(len(left), 'rank')} still {run} after {their} launcher exited",
        evidence=tuple(words),
        cause=(
            "torchrun's agent was killed, and ranks are not notified. They run in sessions of "
            "their own, so a signal to the agent's process group does not reach them. They still "
            "hold GPUs, memory and the rendezvous port."
        ),
        advice=(
            "Stop them: kill " + " ".join(str(p.pid) for p in left[:8]) + ". Stop jobs by SIGTERM "
            "to the agent, or by killing their control group."
        ),
    )


def _is_left(snapshot: Snapshot, process: Process) -> bool:
    """Whether a rank of torchrun has lost its agent for more than a moment."""
    if process.role != "rank" and "RANK" not in process.sample.environment:
        return False
    if process.parent is not None or process.sample.state == "Z":
        return False
    if _ELASTIC not in process.sample.environment and process.role != "rank":
        return False
    agent = snapshot.get(process.original_parent)
    if agent is not None:
        return agent.ended is not None and snapshot.at_s - agent.ended.at_s >= PATIENCE_S
    return process.sample.parent_pid == 1 and _ELASTIC in process.sample.environment
