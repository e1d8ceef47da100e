"""The wait graph: which thread waits for which processes, and the chains of such waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WaitKind

Verdict: TypeAlias = Literal["cycle", "dead-end", "progress", "ordinary", "unknown"]
"""`progress`: the chain ends at a process that runs. `dead-end`: no process can end the wait."""


@dataclass(frozen=True, slots=True)
class WaitEdge:
    """A thread waits for something that other processes can provide."""

    waiter: ProcessId
    tid: int
    kind: WaitKind
    what: str
    """In words: `batch 417`, `pipe 18174`, `semaphore 1a:77`, `exit of 41826`."""
    providers: tuple[ProcessId, ...] = ()
    since_s: float | None = None
    """How long it has waited, within the time observed."""
    evidence: str = ""
    """The source: a system call, a stack frame, the hook."""
    is_ordinary: bool = False
    """A wait by design: an idle worker, back-pressure, a paused debugger."""


@dataclass(frozen=True, slots=True)
class WaitLink:
    """One step of a chain, in words."""

    process: ProcessId | None
    tid: int | None
    who: str
    """`main`, `worker 3`, `rank 1`."""
    words: str
    """`waits for batch 417`."""
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class WaitChain:
    """A chain from a waiting process to the process or resource that would have to continue."""

    links: tuple[WaitLink, ...]
    verdict: Verdict
    conclusion: str = ""
    """Why the chain ends there: `Only the kernel ends this wait: it ignores signals.`"""
    cycle_at: int = 0
    """Of a cycle: the place of its first link; links before it only lead into the cycle."""

    @property
    def sentence(self) -> str:
        """The whole chain in one line: `main waits for batch 417 <- worker 3 owns it <- ...`."""
        return " <- ".join(f"{link.who} {link.words}" for link in self.links)


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """All waits in one snapshot."""

    edges: tuple[WaitEdge, ...] = ()
    chains: tuple[WaitChain, ...] = ()
