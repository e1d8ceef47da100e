"""The fold: inputs of all collectors become snapshots.

The fold reads no clock and no file, and it runs no rules: the same inputs in the same order give
the same snapshots, however often they are asked for. `mpwatch.diagnose.engine` adds findings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter

from msgspec.structs import replace

from mpwatch.model.collectives import NcclStatus
from mpwatch.model.events import (
    HookGauges,
    HookHello,
    HookNote,
    HookSlice,
    HookStatus,
    Input,
    WrittenErrors,
)
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    Ended,
    ProcSample,
    StackSample,
    StacksTaken,
    TreeSample,
    ValuesRead,
)
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.model.source_code import (
    LINES_LIMIT,
    Again,
    Coroutines,
    DroppedResult,
    Holder,
    Mark,
    Origin,
    SourceLine,
    SourceRead,
)
from mpwatch.observe.state.child_targets import TargetTable
from mpwatch.observe.state.event_log import EventLog, HookStateLog, note_words
from mpwatch.observe.state.flows import FlowTable
from mpwatch.observe.state.history import HistoryKeeper
from mpwatch.observe.state.hook_state import HookTable, with_queues
from mpwatch.observe.state.process_builder import (
    EqualStacks,
    build_process,
    frames_without_hook,
    label,
    mixed_without_hook,
)
from mpwatch.observe.state.process_table import ProcessRecord, ProcessTable, ShortLived
from mpwatch.observe.state.progress import ProgressTable
from mpwatch.observe.state.segments import CallSites, FileLines, SegmentTable
from mpwatch.observe.state.written_errors import WrittenErrorTable

ENDED_KEPT = 256
"""Exited processes kept at most: a job that starts workers at every epoch has thousands.

This is the one rule by which processes are dropped: the living ones are kept, those that the last
reading still has (zombies), and of the exited ones the last `ENDED_KEPT`. Of the processes that
were only heard of by their hooks the last `ENDED_KEPT` are kept. Whatever else remembers something
for each process drops it with them.
"""


SOURCE_PROBLEMS = 8
"""Sentences about source files that were not understood, kept of one job."""
VALUES_KEPT = 24
"""Readings of values kept of one process: two minutes of them."""


class NothingObserved(LookupError):
    """A snapshot was requested before the first reading of the job."""


class Fold:
    """Applies inputs in order and makes snapshots of them."""

    def __init__(self) -> None:
        self._tree: TreeSample | None = None
        self._segments: tuple[Segment, ...] = ()
        self._at_s = 0.0
        self._snapshot: Snapshot | None = None
        self._numbers: History | None = None
        self._processes = ProcessTable()
        self._hooks = HookTable()
        self._flows = FlowTable()
        self._progress = ProgressTable()
        self._history = HistoryKeeper()
        self._log = EventLog()
        self._hook_log = HookStateLog()
        self._short_lived = ShortLived()
        self._equal_stacks = EqualStacks()
        self._call_sites = CallSites()
        self._file_lines = FileLines()
        self._segment_table = SegmentTable()
        self._targets = TargetTable()
        self._nccl: NcclStatus | None = None
        self._source: dict[tuple[str, int, str], SourceLine] = {}
        self._dropped: list[DroppedResult] = []
        self._marks: list[Mark] = []
        self._origins: list[Origin] = []
        self._holders: tuple[Holder, ...] = ()
        self._coroutines = Coroutines()
        self._again: tuple[Again, ...] = ()
        self._source_problems: list[str] = []
        self._written = WrittenErrorTable()
        self._values: dict[ProcessId, deque[ValuesRead]] = {}
        self._ended_before = self._lost_before = 0

    def apply(self, input: Input) -> None:
        """Apply one input; one about an unknown process is kept until it is known."""
        self._snapshot = self._numbers = None
        if not isinstance(input, HookNote):  # the time of a note is that of its event
            self._at_s = max(self._at_s, input.at_s)
        match input:
            case TreeSample():
                self._add_tree(input)
            case Ended():
                self._add_exit(input)
            case StacksTaken():
                self._add_stacks(input)
            case NcclStatus():
                self._nccl = input if input.answer is not None else None
            case SourceRead():
                self._add_source(input)
            case ValuesRead():
                self._add_values(input)
            case WrittenErrors():
                self._written.add(input)
                self._settle_written(input.at_s)
            case _:
                self._processes.changed(input.process, self._at_s)
                self._add_from_hook(input)

    def snapshot(self) -> Snapshot:
        """The job after the inputs so far, without findings; the same object until the next input.

        Raises:
            NothingObserved: There was no reading of the job yet.
        """
        if self._snapshot is None:
            self._snapshot = self._build()
        return self._snapshot

    def history(self) -> History:
        """The history of numbers up to now, for rules; the same object until the next input.

        Making one of 64 workers takes a millisecond, and it is asked for twice a reading.
        """
        if self._numbers is None:
            self._numbers = self._history.history()
        return self._numbers

    # --- readings --------------------------------------------------------------------------------

    def _add_tree(self, tree: TreeSample) -> None:
        if self._tree is None:
            self._log.set_clock(tree.at_s, tree.wall_s)
        self._tree = tree
        pids = {sample.process.pid: sample.process for sample in tree.processes}
        self._processes.by_pid.update(pids)
        for sample in tree.processes:
            self._add_sample(sample, pids.get(sample.parent_pid), tree)
        for record in self._processes.vanished(tree):
            problem = "it was not running at the next reading"
            self._end(record, Ended(record.sample.process, tree.at_s, problem=problem))
        self._add_short_lived(tree)
        for process in self._targets.update(self._processes.records, self._hooks.start_description):
            self._processes.changed(process, self._processes.records[process].changed_s)
        self._settle_written(tree.at_s)
        self._forget_oldest(tree)
        self._join_segments(tree)
        self._history.add(tree, self._segments, self._processes.numbers(tree))
        self._hook_log.add_silences(tree.at_s, self._log)

    def _add_sample(self, sample: ProcSample, parent: ProcessId | None, tree: TreeSample) -> None:
        record = self._processes.get(sample.process)
        if record is None:
            self._processes.add(ProcessRecord(sample, parent))
            if self._history.has_begun:
                words = f"{label(sample)} {sample.process.pid} was started"
                self._log.add(tree.at_s, "started", sample.process, words)
            return
        is_over = (
            record.ended is not None or sample.state in ("Z", "X") or sample.process == tree.root
        )
        if record.parent is not None and parent is None and not is_over:
            words = f"{label(sample)} {sample.process.pid} lost its parent {record.parent.pid}"
            self._log.add(tree.at_s, "orphaned", sample.process, words)
        record.set_parent(parent)
        record.add(sample, tree.at_s)
        self._processes.changed(sample.process, self._at_s)

    def _add_short_lived(self, tree: TreeSample) -> None:
        """Add children that only their parent's hook reported, as exited processes."""
        if not self._short_lived.has_any:
            return
        table = self._processes
        for sample, ended in self._short_lived.missed(
            tree.at_s, table.by_pid, table.samples(), tree.ticks_per_s
        ):
            record = ProcessRecord(sample, table.by_pid.get(sample.parent_pid))
            table.by_pid[sample.process.pid] = sample.process
            table.add(record)
            self._end(record, ended)

    def _join_segments(self, tree: TreeSample) -> None:
        self._segments = self._segment_table.join(
            tree.processes, self._processes.by_pid, self._call_sites.by_segment
        )
        self._call_sites.forget_gone(self._segments, tree.at_s)
        creators = {
            (segment.segment.inode, segment.segment.device): segment.creator
            for segment in self._segments
            if segment.creator is not None
        }
        self._flows.settle(tree.at_s, creators)
        self._flows.keep(self._is_kept)

    def _is_kept(self, process: ProcessId) -> bool:
        """Whether anything is kept of a process; see `ENDED_KEPT`."""
        return process in self._processes.records or self._hooks.get(process) is not None

    def _forget_oldest(self, tree: TreeSample) -> None:
        """Drop the oldest exited processes, so that memory is bounded; see `ENDED_KEPT`."""
        unknown = self._hooks.without(self._processes.records)
        for process in unknown[: max(0, len(unknown) - ENDED_KEPT)]:
            self._forget(process)
        for process in self._processes.oldest_ended(tree, ENDED_KEPT):
            self._forget(process)

    def _forget(self, process: ProcessId) -> None:
        if self._processes.get(process) is not None:
            hooked = self._hooks.get(process)
            self._ended_before += 1
            self._lost_before += hooked.hook().lost if hooked is not None else 0
        self._processes.forget(process)
        self._hooks.forget(process)
        self._history.forget(process)
        self._targets.forget(process)
        self._progress.forget(process)
        self._hook_log.forget(process)
        self._written.forget(process)
        self._values.pop(process, None)

    # --- exits and stacks ------------------------------------------------------------------------

    def _add_exit(self, ended: Ended) -> None:
        record = self._processes.get(ended.process)
        if record is None:
            words = f"{ended.process.pid} lived only briefly, {ended.words}"
            self._log.add(ended.at_s, "ended", ended.process, words, _exit_details(ended))
        elif record.ended is None or (record.ended.problem and not ended.problem):
            self._end(record, ended)

    def _end(self, record: ProcessRecord, ended: Ended) -> None:
        record.ended = ended
        process = record.sample.process
        self._processes.changed(process, self._at_s)
        name = label(record.sample, self._targets.get(process))
        words = f"{name} {process.pid} ended: {ended.words}"
        self._log.add(ended.at_s, "ended", process, words, _exit_details(ended))

    def _settle_written(self, at_s: float) -> None:
        """Log the tracebacks in files of which it is known by now whose they are."""
        for told in self._written.settle(self._processes.records, self._hooks.start_description):
            self._processes.changed(told.process, self._at_s)
            self._log.add(at_s, told.kind, told.process, told.words, told.details)

    def _add_stacks(self, taken: StacksTaken) -> None:
        record = self._processes.get(taken.process)
        if record is None:
            return
        self._processes.changed(taken.process, self._at_s)
        if taken.source != "hook" and taken.has_stopped:
            self._history.add_point(taken.process, "stack_stops", taken.at_s, 1)
        record.stacks_problem, record.stacks_cost_s = taken.problem, taken.cost_s
        if taken.problem is None or taken.stacks:
            record.stacks = _by_thread(taken.stacks, self._equal_stacks)
            self._file_lines.add_stacks(taken.stacks)

    def _add_source(self, read: SourceRead) -> None:
        """Add lines up to a limit: a recording may be of another user, and have any number."""
        for line in read.lines[-LINES_LIMIT:]:
            self._source.pop((line.file, line.line, line.function), None)
            self._source[line.file, line.line, line.function] = line
            if len(self._source) > LINES_LIMIT:
                del self._source[next(iter(self._source))]
        self._dropped += read.dropped[: LINES_LIMIT - len(self._dropped)]
        self._marks += read.marks[: LINES_LIMIT - len(self._marks)]
        self._origins += read.origins[: LINES_LIMIT - len(self._origins)]
        if read.holders is not None:
            self._holders = read.holders[:LINES_LIMIT]
        if read.coroutines is not None:
            self._coroutines = Coroutines(
                read.coroutines.unsafe[:LINES_LIMIT], read.coroutines.unread[:LINES_LIMIT]
            )
        if read.again is not None:
            self._again = read.again[:LINES_LIMIT]
        self._source_problems += read.problems[: SOURCE_PROBLEMS - len(self._source_problems)]

    def _add_values(self, read: ValuesRead) -> None:
        if read.process in self._processes.records:
            of_process = self._values.setdefault(read.process, deque(maxlen=VALUES_KEPT))
            of_process.append(read)

    # --- hooks -----------------------------------------------------------------------------------

    def _add_from_hook(
        self, input: HookHello | HookSlice | HookNote | HookGauges | HookStatus
    ) -> None:
        hook = self._hooks.of(input.process)
        match input:
            case HookHello():
                hook.add_hello(input)
                self._progress.add_hello(input)
            case HookSlice():
                events = hook.add_slice(input)
                self._progress.add_events(input, events)
                for event in events:
                    self._flows.add(input.process, event)
                    self._short_lived.add_event(input.process, event)
            case HookNote():
                if hook.add_note(input):
                    self._add_new_note(input)
            case HookGauges():
                hook.add_gauges(input)
                self._progress.add_gauges(input)
                if (unreleased := hook.cuda_unreleased()) is not None:
                    self._history.add_point(
                        input.process, "cuda_unreleased", input.at_s, unreleased
                    )
                if (backlog := hook.queue_backlog()) is not None:
                    self._history.add_point(input.process, "queue_backlog", input.at_s, backlog)
            case HookStatus():
                hook.add_status(input)
                self._hook_log.add(input, self._log)

    def _add_new_note(self, note: HookNote) -> None:
        self._short_lived.add_note(note)
        if note.kind in ("exception", "exit") and note.data.get("where") != "task":
            self._written.know(note.process)
        if note.kind == "call-site":
            self._call_sites.add(note)
            self._file_lines.add_note(note)
        else:
            words = note_words(note.kind, note.data)
            self._log.add(note.at_ns / 1e9, note.kind, note.process, words, note.data)

    # --- the snapshot ----------------------------------------------------------------------------

    def _build(self) -> Snapshot:
        tree = self._tree
        if tree is None:
            raise NothingObserved("the job has not been read yet")
        records = self._processes.records
        now_ns = int(self._at_s * 1e9)
        return Snapshot(
            at_s=self._at_s,
            wall_s=tree.wall_s + (self._at_s - tree.at_s),
            root=tree.root,
            host=tree.host,
            processes=tuple(self._build_processes(tree)),
            segments=self._segments,
            file_lines=self._file_lines.lines(),
            gpus=tree.gpus,
            flows=self._flows.flows(),
            progress=self._progress.sources(),
            loaders=tuple(
                loader
                for process, hook in self._hooks.items()
                if process in records and records[process].ended is None
                for loader in hook.loaders(now_ns)
            ),
            log=self._log.entries,
            log_dropped=self._log.dropped,
            ended_before=self._ended_before,
            lost_before=self._lost_before,
            errors=self._log.errors,
            ticks_per_s=tree.ticks_per_s,
            nccl=self._nccl,
            source=tuple(self._source.values()),
            dropped=tuple(self._dropped),
            marks=tuple(self._marks),
            origins=tuple(self._origins),
            holders=self._holders,
            coroutines=self._coroutines,
            again=self._again,
            values=tuple(
                sorted(
                    (each for found in self._values.values() for each in found),
                    key=attrgetter("at_s"),
                )
            ),
            written=self._written.left,
            part_of=tree.part_of,
            problems=(*tree.problems, *tree.host.problems, *self._source_problems),
        )

    def _build_processes(self, tree: TreeSample) -> list[Process]:
        found = []
        for process, depth in self._processes.in_families(tree.root):
            shown = self._processes.shown_ended(process, depth)
            if shown is None:
                record = self._processes.records[process]
                has_ended = record.ended is not None
                shown = build_process(
                    record,
                    self._hooks.get(process),
                    () if has_ended else tree.gpus or (),
                    self._history.trends(process),
                    record.changed_s if has_ended else self._at_s,
                    tree.ticks_per_s,
                    depth=depth,
                    task=self._targets.get(process),
                )
                if has_ended:
                    self._processes.keep_ended(shown)
            found.append(shown)
        return with_queues(found, self._hooks.batches())


def _by_thread(stacks: Iterable[StackSample], equal: EqualStacks) -> dict[int, StackSample]:
    """Stacks by kernel thread id, without the frames that a fork copied."""
    out: dict[int, StackSample] = {}
    for index, stack in enumerate(stacks):
        frames = equal.one_of(frames_without_hook(stack.frames))
        tid = stack.tid if stack.tid is not None else -1 - index
        mixed = mixed_without_hook(stack.mixed)
        if frames is not stack.frames or len(mixed) < len(stack.mixed):
            stack = replace(stack, frames=frames, mixed=mixed)
        out[tid] = stack
    return out


def _exit_details(ended: Ended) -> dict[str, object]:
    return {"exit_code": ended.exit_code, "signal": ended.signal}
