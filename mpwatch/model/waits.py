"""Waits: the polls inside of a torch DataLoader, and the wait graph with its chains.

How such a poll looks from outside: `MP_STATUS_CHECK_INTERVAL = 5.0` and `_pin_memory_loop` of
`torch.utils.data`, torch 2.1 to 2.9. Main, workers and the pin-memory thread call `Queue.get` with
this limit in a loop.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample, WaitedOn, WaitKind

POLL_S = (4.0, 5.01)
"""Timeout of such a poll: five seconds, less what has passed since, rounded to milliseconds."""
SETTLED_S = 2.0
"""A shorter wait may be ordinary: the time between a put and a get, threads that take turns at a
lock, a manager that works for its client, or two threads that were read one after the other."""
RPC_THREAD = "pt_thread_pool"
"""Name of the threads in which torch.distributed.rpc runs calls of other processes, and completes
its own ones (seen in torch 2.13)."""
PIN_THREAD = "pt_data_pin"
"""How the kernel's name of the pin-memory thread begins."""
Verdict: TypeAlias = Literal["cycle", "dead-end", "progress", "ordinary", "unknown"]
"""`progress`: the chain ends at a process that runs. `dead-end`: no process can end the wait."""


def is_loader_poll(wait: WaitedOn | None) -> bool:
    """Whether a thread polls as `Queue.get` does inside of a DataLoader."""
    if wait is None or wait.kind != "poll" or wait.timeout_s is None:
        return False
    return POLL_S[0] <= wait.timeout_s <= POLL_S[1]


def loader_wait(sample: ProcSample) -> float | None:
    """1 while the main thread waits for a batch or for work, else 0; `None` if it was not read.

    With pinned memory main waits for its pin thread instead, by a condition with the same limit.
    """
    main = next((t for t in sample.threads or () if t.tid == sample.process.pid), None)
    if main is None or (main.waits_on is None and main.state != "R"):
        return None
    if main.state != "S":
        return 0.0
    wait = main.waits_on
    if is_loader_poll(wait):
        return 1.0
    is_pinned = any(t.name.startswith(PIN_THREAD) for t in sample.threads or ())
    is_limited = wait is not None and wait.kind == "futex" and wait.timeout_s is not None
    return float(is_pinned and is_limited)


class WaitEdge(Struct, frozen=True):
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


class WaitLink(Struct, frozen=True):
    """One step of a chain, in words."""

    process: ProcessId | None
    tid: int | None
    name: str
    """`main`, `worker 3`, `rank 1`."""
    words: str
    """`waits for batch 417`."""
    since_s: float | None = None


class WaitChain(Struct, frozen=True):
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
        return " <- ".join(f"{link.name} {link.words}" for link in self.links)


class WaitGraph(Struct, frozen=True):
    """All waits in one snapshot."""

    edges: tuple[WaitEdge, ...] = ()
    chains: tuple[WaitChain, ...] = ()
