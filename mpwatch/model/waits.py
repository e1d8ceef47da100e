"""Who waits for whom: the graph behind "why does it stand still"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WaitKind

Verdict: TypeAlias = Literal["cycle", "dead-end", "progress", "ordinary", "unknown"]
"""`progress`: the chain ends at something that runs. `dead-end`: nobody can ever end the wait."""


@dataclass(frozen=True, slots=True)
class WaitEdge:
    """One thread waits for something that these processes could provide."""

    waiter: ProcessId
    tid: int
    kind: WaitKind
    what: str
    """In words: `batch 417`, `pipe 18174`, `semaphore 1a:77`, `exit of 41826`."""
    providers: tuple[ProcessId, ...] = ()
    since_s: float | None = None
    """How long it has waited, as far as was observed."""
    evidence: str = ""
    """From which layer this is known: a system call, a stack frame, the hook."""
    is_ordinary: bool = False
    """An idle worker, back-pressure, a paused debugger: waiting that means nothing."""


@dataclass(frozen=True, slots=True)
class WaitLink:
    """One step of a chain, ready to read."""

    process: ProcessId | None
    tid: int | None
    who: str
    """`main`, `worker 3`, `rank 1`."""
    words: str
    """`waits for batch 417`."""
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class WaitChain:
    """From a waiting process to what would have to move."""

    links: tuple[WaitLink, ...]
    verdict: Verdict
    conclusion: str = ""
    """`Nobody will ever release this lock.`"""

    @property
    def sentence(self) -> str:
        """The whole chain in one line: `main waits for batch 417 <- worker 3 owns it <- ...`."""
        return " <- ".join(f"{link.who} {link.words}" for link in self.links)


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """All waiting of one moment."""

    edges: tuple[WaitEdge, ...] = ()
    chains: tuple[WaitChain, ...] = ()
