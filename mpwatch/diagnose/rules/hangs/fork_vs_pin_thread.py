"""A DataLoader forked its workers while another one's pin-memory thread was running."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, loader_owners
from mpwatch.diagnose.analysis.waits.threads import forked_alone
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import ThreadSample
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import PIN_THREAD

RULE = "fork-vs-pin-thread"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each child blocked this way; without one, for each loader at risk.

    A loader's own workers are forked before its pin-memory thread starts; only those of a second
    loader are younger than the thread.
    """
    stuck_children = set()
    for stuck in forked_alone(index, "pin-thread"):
        stuck_children.add(stuck.process.process)
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=stuck.process.process,
            tid=stuck.thread.tid,
            summary=(
                f"{called(stuck.process)} has waited {stuck.lasted} for a lock that "
                "was locked when it was forked, while a pin-memory thread ran"
            ),
            evidence=stuck.evidence,
            cause=_CAUSE,
            advice=_ADVICE,
        )
    for owner, workers in loader_owners(index):
        pinning = _pin_threads(owner)
        exposed = [w for w in workers if any(_is_older(t, w) for t in pinning)]
        if exposed and not stuck_children:
            yield _risk(owner, exposed)


def _pin_threads(owner: Process) -> list[ThreadSample]:
    """The threads of a process that pin memory."""
    return [t for t in owner.sample.threads or () if t.name.startswith(PIN_THREAD)]


def _is_older(thread: ThreadSample, worker: Process) -> bool:
    """Whether a thread existed when a worker was forked."""
    if worker.sample.start_method != "fork" or thread.start_ticks is None:
        return False
    return thread.start_ticks < worker.process.start_ticks


def _risk(owner: Process, exposed: list[Process]) -> Finding:
    """The finding for a fork that happened while another loader pinned memory."""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=owner.process,
        summary=f"{called(owner)} forks DataLoader workers while another loader pins memory",
        evidence=(
            f"{all_called(exposed)} {'is' if len(exposed) == 1 else 'are'} younger than a living "
            f"{PIN_THREAD} thread of {called(owner)}",
            "they were started by fork",
        ),
        cause=_CAUSE,
        advice=_ADVICE,
    )


_CAUSE = (
    "The thread that pins the batches of one DataLoader was running while another DataLoader "
    "forked its workers. Locks of glibc, CUDA or the allocator that the thread holds at the fork "
    "stay locked in the child. It happens rarely and at random, when an epoch or a validation "
    "starts."
)
_ADVICE = (
    "Create all loaders with persistent_workers=True and start them before iterating over any (all "
    "workers then use memory all the time). Or start the workers by forkserver or spawn, which "
    "pickles the dataset and takes seconds."
)
