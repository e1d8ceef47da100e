"""Ranks run on although their launcher is gone."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, counted
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import OF_TORCHRUN, only_adopts_ranks
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "torchrun-agent-killed-orphans"
PATIENCE_S = 5.0


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
    is_torchruns = all(OF_TORCHRUN in p.sample.environment for p in left)
    yield Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=left[0].process,
        summary=f"{counted(len(left), 'rank')} still {run} after {their} launcher exited",
        evidence=tuple(words),
        cause=(_OF_TORCHRUN if is_torchruns else _OF_ANOTHER)
        + " They still hold GPUs, memory and the rendezvous port.",
        advice=(
            "Stop them: kill " + " ".join(str(p.pid) for p in left[:8]) + ". Stop jobs by SIGTERM "
            f"to the {'agent' if is_torchruns else 'launcher'}, or by killing their control group."
        ),
    )


_OF_TORCHRUN = (
    "torchrun's agent has ended without stopping its ranks, as it does when it is killed, and "
    "ranks are not notified. They run in sessions of their own, so a signal to the agent's process "
    "group does not reach them."
)
_OF_ANOTHER = (
    "The process that started them has ended without stopping them, as it does when it is killed, "
    "and its children are not notified."
)


def _is_left(snapshot: Snapshot, process: Process) -> bool:
    """Whether a rank has lost its launcher for more than a moment.

    Its parent was seen to end, or process 1 has a rank that it cannot have started. That process 1
    is the parent is not enough: in a container it may be the launcher.
    """
    sample = process.sample
    if process.role not in ("rank", "main") or process.parent is not None or sample.state == "Z":
        return False
    is_torchruns = OF_TORCHRUN in sample.environment and "RANK" in sample.environment
    if not is_torchruns and process.role != "rank":
        return False
    agent = snapshot.get(process.original_parent)
    if agent is not None:
        return agent.ended is not None and snapshot.at_s - agent.ended.at_s >= PATIENCE_S
    if not is_torchruns:
        return False
    was_seen = process.original_parent is not None
    return was_seen or (sample.parent_pid == 1 and only_adopts_ranks(snapshot.host.init))
