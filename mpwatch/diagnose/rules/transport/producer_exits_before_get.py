"""A process that sent tensors exited before they were received."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.exits.kinds import TOGETHER_S, could_not_receive, death_of, raised_at
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, called_if_known, family_head
from mpwatch.diagnose.analysis.stack_patterns import main_shape
from mpwatch.diagnose.known_errors import evidence_of, gives, tagged
from mpwatch.model.events import WrittenError
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "producer-exits-before-get"
SAME_READING_S = 0.3
SETTLED_S = 2.0
"""By then it is known whether the parent starts the next workers of a loader."""
RECENT_S = 60.0
"""Tensors not received by then are unlikely to be awaited."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that failed to receive a tensor from a dead sender.

    Unreceived tensors at a producer's exit are ordinary where DataLoader workers shut down with
    prefetched batches, and a pin thread may still ask for them meanwhile.
    """
    entries = [e for e in tagged(index.snapshot, RULE) if not _is_shutdown(index, e)]
    for entry in entries:
        yield _not_received(index.snapshot, entry)
    written = [e for e in index.snapshot.written if e.is_of_job and could_not_receive(e)]
    if not entries and written:
        yield _written(index.snapshot, written[-1])
    elif not entries:
        yield from _unfetched(index)


def _unfetched(index: Index) -> Iterator[Finding]:
    """Producers that exited while tensors they had sent were not yet received.

    A descriptor without a mapping is a tensor in transit. Whether a consumer waits for it cannot
    be observed, so the finding is information. Where a parent has DataLoader workers, one
    that lived only briefly may not have been known as such.
    """
    processes = index.snapshot.processes
    exited = [
        (process, process.ended)
        for process in processes
        if process.ended is not None and process.role in ("spawned", "pool-worker")
    ]
    loading = {head.process for p in processes if exited and (head := _loads_for(index, p))}
    for process, ended in exited:
        head = family_head(index, process)
        own = (process.pid, process.sample.ns_pid)
        sent = [
            use
            for use in process.sample.segments or ()
            if use.kind == "torch" and use.creator_pid in own and use.fds and not use.ranges
        ]
        is_recent = SETTLED_S <= index.snapshot.at_s - ended.at_s <= RECENT_S
        if not sent or not is_recent or head is None or head.is_gone or head.process in loading:
            continue
        lost = {use.segment for use in sent}.isdisjoint(_held(index.snapshot))
        if lost and len(sent) > _closed(process, index.history):
            yield _left_unfetched(process, ended, len(sent), index.snapshot)


def _held(snapshot: Snapshot) -> Iterator[SegmentId]:
    """Segments that living processes hold."""
    return (use.segment for p in snapshot.living() for use in p.sample.segments or ())


def _closed(process: Process, history: History) -> float:
    """Descriptors it closed after they were listed: perhaps those of tensors that were fetched."""
    fds, counts = process.sample.fds, history.of(process.process, "fds")
    if fds is None or fds.read_at_s is None or not counts:
        return 0
    at_list = [point.value for point in counts if point.at_s <= fds.read_at_s + SAME_READING_S]
    return at_list[-1] - counts[-1].value if at_list else 0


def _loads_for(index: Index, process: Process) -> Process | None:
    """The owner of the loader that a process works for; `None` if it is no loader's worker.

    Workers of other libraries' loaders run a loop of the same name, which a stack shows.
    """
    is_worker = process.role == "loader-worker" or main_shape(process).startswith("worker-")
    return family_head(index, process) if is_worker else None


def _left_unfetched(process: Process, ended: Ended, count: int, snapshot: Snapshot) -> Finding:
    """The finding for a producer that exited with unreceived tensors."""
    tensors = "a tensor it sent was" if count == 1 else f"{count} tensors it sent were"
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        summary=f"{called(process)} exited before {tensors} received",
        evidence=(
            f"{count} of its segments {'was' if count == 1 else 'were'} open in no other process "
            "when it was last sampled",
            f"{called(process)} ended {seconds_text(snapshot.at_s - ended.at_s)} ago: "
            f"{ended.words}",
            "no living process holds them: receiving them from the queue now raises an error",
        ),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _is_shutdown(index: Index, entry: LogEntry) -> bool:
    """Whether all processes that had exited are loader workers that their main shut down."""
    gone = [
        (process, process.ended)
        for process in index.snapshot.processes
        if process.ended is not None
        and process.process != entry.process
        and process.ended.at_s <= entry.at_s + TOGETHER_S
    ]
    return bool(gone) and all(
        process.role == "loader-worker"
        and death_of(ended) == "normal"
        and (head := family_head(index, process)) is not None
        and head.process == entry.process
        for process, ended in gone
    )


def _not_received(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """The finding for a receiver whose sender has exited."""
    process = snapshot.get(entry.process)
    address = entry.details.get("address")
    evidence = evidence_of(entry)
    if isinstance(address, str):
        evidence = (*evidence, f"the sender's socket was {address}")
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=entry.process,
        summary=(
            f"{called_if_known(process)} cannot receive a tensor: the process that sent it has "
            "exited"
        ),
        evidence=evidence,
        cause=f"{_CAUSE} {_how_it_ended(is_refused=gives(entry, 'refused'))}",
        advice=_ADVICE,
    )


def _written(snapshot: Snapshot, error: WrittenError) -> Finding:
    """The finding for a receiver of which only the traceback in the job's output is known."""
    raised = error.raised
    name = error.process_name or "a process of the job"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=snapshot.root,
        subject="written",
        summary=(
            f"{name} could not receive a tensor at {raised_at(raised)}: the process that "
            "sent it had exited"
        ),
        evidence=(
            f"its traceback in {error.file.rpartition('/')[2]}: {raised.type}: {raised.text}, "
            f"raised at {frame_words(raised.frames[0]).strip()}",
        ),
        cause=f"{_CAUSE} {_how_it_ended(is_refused=raised.type == 'ConnectionRefusedError')}",
        advice=_ADVICE,
    )


def _how_it_ended(*, is_refused: bool) -> str:
    """What the error says about the end of the sender."""
    if is_refused:
        return "ConnectionRefusedError means that it was killed or crashed: its socket is left."
    return (
        "FileNotFoundError means that it removed its socket in a normal exit, or that its pymp-* "
        "directory in TMPDIR was removed."
    )


_CAUSE = (
    "Under the strategy file_descriptor a queue carries handles, not tensors: the receiver gets "
    "the memory from the sender, which has to be alive then."
)
_ADVICE = (
    "Keep producers alive until consumers have received everything (an Event or a Barrier), and "
    "join them last. Or send small results as numpy arrays, which travel in the queue itself, as a "
    "copy. The strategy file_system lets tensors outlive their producer, but leaks files when the "
    "job is killed."
)
