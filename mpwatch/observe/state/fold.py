"""From inputs to snapshots: the one place where the layers meet.

The fold reads no clock and no file, and it asks no rules: the same inputs in the same order give
the same snapshots, however often they are asked for. `mpwatch.diagnose.engine` adds findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mpwatch.model.events import HookGauges, HookHello, HookNote, HookSlice, HookStatus, Input
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import Ended, ProcSample, StackSample, StacksTaken, TreeSample
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.observe.state.event_log import HookLog, Journal, note_words
from mpwatch.observe.state.flows import FlowTable
from mpwatch.observe.state.history import HistoryKeeper
from mpwatch.observe.state.hook_state import HookLedger, with_queues
from mpwatch.observe.state.process_builder import (
    EqualStacks,
    FamilyOrder,
    Member,
    build_process,
    cpu_percent,
    label,
    program_frames,
)
from mpwatch.observe.state.segments import MappedBytes, SegmentTable
from mpwatch.observe.state.short_lived import BriefLives

ENDED_KEPT = 256
"""Ended processes shown at most: a job that starts workers at every epoch has thousands."""


EVENTS_WINDOW_S = 5.0
SITE_KEPT_S = 5.0
"""A segment's line of code may be told before the segment itself is read."""


class NothingObserved(LookupError):
    """A snapshot was asked for before the first reading of the job."""


class Fold:
    """Takes inputs in the order they came and makes snapshots of them."""

    def __init__(self) -> None:
        self._members: dict[ProcessId, Member] = {}
        self._by_pid: dict[int, ProcessId] = {}
        self._ledgers: dict[ProcessId, HookLedger] = {}
        self._gone: dict[ProcessId, Process] = {}
        """Ended processes as they are shown, until something more is heard of them."""
        self._flows = FlowTable()
        self._history = HistoryKeeper()
        self._journal = Journal()
        self._brief_lives = BriefLives()
        self._hook_log = HookLog()
        self._equal_stacks = EqualStacks()
        self._call_sites: dict[SegmentId, str] = {}
        self._sites_noted_s: dict[SegmentId, float] = {}
        self._tree: TreeSample | None = None
        self._segments: tuple[Segment, ...] = ()
        self._segment_table = SegmentTable()
        self._mapped = MappedBytes()
        self._families = FamilyOrder()
        self._at_s = 0.0
        self._events_marks: list[tuple[float, int]] = []
        self._event_count = 0
        self._snapshot: Snapshot | None = None

    def apply(self, input: Input) -> None:
        """Take in one input; one about an unknown process is kept until it is known."""
        self._snapshot = None
        match input:
            case TreeSample():
                self._take_tree(input)
            case Ended():
                self._take_end(input)
            case StacksTaken():
                self._take_stacks(input)
            case HookSlice():
                self._take_slice(input)
            case HookNote():
                self._take_note(input)
            case HookHello():
                self._at_s = max(self._at_s, input.at_s)
                self._ledger(input.process).add_hello(input)
            case HookGauges():
                self._at_s = max(self._at_s, input.at_s)
                ledger = self._ledger(input.process)
                ledger.add_gauges(input)
                if (unreleased := ledger.cuda_unreleased()) is not None:
                    self._history.add_point(
                        input.process, "cuda_unreleased", input.at_s, unreleased
                    )
            case HookStatus():
                self._take_status(input)

    def snapshot(self) -> Snapshot:
        """The job after the inputs so far, without findings; the same object until the next input.

        Raises:
            NothingObserved: No reading of the job has come in yet.
        """
        if self._snapshot is None:
            self._snapshot = self._build()
        return self._snapshot

    def history(self) -> History:
        """How numbers moved up to now, for rules; valid until the next input."""
        return self._history.history()

    # --- inputs ----------------------------------------------------------------------------------

    def _take_tree(self, tree: TreeSample) -> None:
        if self._tree is None:
            self._journal.set_clock(tree.at_s, tree.wall_s)
        self._tree = tree
        self._at_s = max(self._at_s, tree.at_s)
        by_pid = {sample.process.pid: sample.process for sample in tree.processes}
        self._by_pid.update(by_pid)
        for sample in tree.processes:
            self._take_sample(sample, by_pid, tree)
        self._mark_vanished(tree)
        self._take_brief_lives(tree)
        self._forget_oldest()
        self._segments = self._segment_table.join(tree.processes, self._by_pid, self._call_sites)
        self._forget_sites(tree.at_s)
        creators = {
            (segment.segment.inode, segment.segment.device): segment.creator
            for segment in self._segments
            if segment.creator is not None
        }
        self._flows.settle(tree.at_s, creators)
        cpu = {
            sample.process: cpu_percent(self._members[sample.process], tree.ticks_per_s)
            for sample in tree.processes
        }
        self._history.add(tree, self._segments, cpu)
        self._mark_events(tree.at_s)
        self._hook_log.tell_silences(tree.at_s, self._journal)

    def _forget_sites(self, at_s: float) -> None:
        """Drop lines of segments that are gone: their inodes will be used again."""
        if not self._sites_noted_s:
            return
        living = {segment.segment for segment in self._segments}
        for segment, noted_s in list(self._sites_noted_s.items()):
            if segment not in living and at_s - noted_s > SITE_KEPT_S:
                del self._sites_noted_s[segment], self._call_sites[segment]

    def _take_sample(
        self, sample: ProcSample, by_pid: dict[int, ProcessId], tree: TreeSample
    ) -> None:
        parent = by_pid.get(sample.parent_pid)
        member = self._members.get(sample.process)
        if member is None:
            self._members[sample.process] = Member(sample, parent=parent, original_parent=parent)
            if self._history.history().started_at_s is not None:
                words = f"{label(sample)} {sample.process.pid} was born"
                self._journal.add(tree.at_s, "born", sample.process, words)
            return
        if member.parent is not None and parent is None and sample.process != tree.root:
            words = f"{label(sample)} {sample.process.pid} lost its parent {member.parent.pid}"
            self._journal.add(tree.at_s, "orphaned", sample.process, words)
        member.parent = parent
        if member.original_parent is None:
            member.original_parent = parent
        member.take(sample, tree.at_s)

    def _mark_vanished(self, tree: TreeSample) -> None:
        """A process that is no longer read has ended, even if nobody saw how."""
        present = {sample.process for sample in tree.processes}
        for process, member in self._members.items():
            if process not in present and member.ended is None:
                self._end(member, Ended(process, tree.at_s, problem="it was gone at the next look"))

    def _take_brief_lives(self, tree: TreeSample) -> None:
        """Take in those whom only their parent's hook has seen, as processes that have ended."""
        if not self._brief_lives.has_any:
            return
        samples = {process: member.sample for process, member in self._members.items()}
        found = self._brief_lives.missed(tree.at_s, self._by_pid, samples, tree.ticks_per_s)
        for sample, ended in found:
            parent = self._by_pid.get(sample.parent_pid)
            self._by_pid[sample.process.pid] = sample.process
            self._members[sample.process] = Member(sample, parent=parent, original_parent=parent)
            self._end(self._members[sample.process], ended)

    def _take_end(self, ended: Ended) -> None:
        self._at_s = max(self._at_s, ended.at_s)
        member = self._members.get(ended.process)
        if member is None:
            words = f"{ended.process.pid} lived only briefly, {ended.words}"
            self._journal.add(ended.at_s, "ended", ended.process, words, _end_details(ended))
        elif member.ended is None or (member.ended.problem and not ended.problem):
            self._end(member, ended)

    def _end(self, member: Member, ended: Ended) -> None:
        member.ended = ended
        self._gone.pop(ended.process, None)
        sample = member.sample
        words = f"{label(sample)} {sample.process.pid} ended: {ended.words}"
        self._journal.add(ended.at_s, "ended", sample.process, words, _end_details(ended))

    def _forget_oldest(self) -> None:
        """Keep the memory of a job bounded whose processes come and go for days."""
        strangers = [process for process in self._ledgers if process not in self._members]
        for process in strangers[: max(0, len(strangers) - ENDED_KEPT)]:
            self._forget(process)
        ended = [m for m in self._members.values() if m.ended is not None]
        if len(ended) <= ENDED_KEPT:
            return
        ended.sort(key=lambda member: member.ended.at_s if member.ended else 0.0)
        for member in ended[: len(ended) - ENDED_KEPT]:
            self._forget(member.sample.process)

    def _forget(self, process: ProcessId) -> None:
        self._members.pop(process, None)
        self._gone.pop(process, None)
        self._ledgers.pop(process, None)
        self._history.forget(process)
        self._flows.forget(process)
        self._mapped.forget(process)
        self._hook_log.forget(process)
        if self._by_pid.get(process.pid) == process:
            del self._by_pid[process.pid]

    def _take_stacks(self, taken: StacksTaken) -> None:
        self._at_s = max(self._at_s, taken.at_s)
        member = self._members.get(taken.process)
        if member is None:
            return
        self._gone.pop(taken.process, None)
        if taken.source != "hook":
            self._history.add_point(taken.process, "looks", taken.at_s, 1)
        member.stacks_problem, member.stacks_cost_s = taken.problem, taken.cost_s
        if taken.problem is None or taken.stacks:
            member.stacks = _by_thread(taken.stacks, self._equal_stacks)

    def _take_slice(self, part: HookSlice) -> None:
        self._at_s = max(self._at_s, part.at_s)
        events = self._ledger(part.process).add_slice(part)
        self._event_count += len(events)
        for event in events:
            self._flows.add(part.process, event)
            self._brief_lives.take_event(part.process, event)

    def _take_note(self, note: HookNote) -> None:
        if not self._ledger(note.process).add_note(note):
            return
        self._brief_lives.take_note(note)
        at_s = note.at_ns / 1e9
        if note.kind == "call-site":
            self._take_call_site(note)
            return
        self._journal.add(
            at_s, note.kind, note.process, note_words(note.kind, note.data), note.data
        )

    def _take_call_site(self, note: HookNote) -> None:
        inode, device, site = (note.data.get(name) for name in ("inode", "device", "site"))
        if isinstance(inode, int) and isinstance(device, int) and isinstance(site, str):
            self._call_sites[SegmentId(device, inode)] = site
            self._sites_noted_s[SegmentId(device, inode)] = note.at_ns / 1e9

    def _take_status(self, status: HookStatus) -> None:
        self._at_s = max(self._at_s, status.at_s)
        self._ledger(status.process).add_status(status)
        self._hook_log.take(status, self._journal)

    def _ledger(self, process: ProcessId) -> HookLedger:
        self._gone.pop(process, None)
        ledger = self._ledgers.get(process)
        if ledger is None:
            ledger = self._ledgers[process] = HookLedger(process)
        return ledger

    # --- the snapshot ----------------------------------------------------------------------------

    def _build(self) -> Snapshot:
        tree = self._tree
        if tree is None:
            raise NothingObserved("the job has not been read yet")
        now_ns = int(self._at_s * 1e9)
        loaders = [
            loader
            for process, ledger in self._ledgers.items()
            if process in self._members and self._members[process].ended is None
            for loader in ledger.loaders(now_ns)
        ]
        return Snapshot(
            at_s=self._at_s,
            wall_s=tree.wall_s + (self._at_s - tree.at_s),
            root=tree.root,
            host=tree.host,
            processes=tuple(self._processes(tree)),
            segments=self._segments,
            gpus=tree.gpus,
            flows=self._flows.flows(),
            loaders=tuple(loaders),
            log=self._journal.entries,
            log_dropped=self._journal.dropped,
            errors=self._journal.errors,
            events_per_s=self._events_per_s(),
            problems=(*tree.problems, *tree.host.problems),
        )

    def _processes(self, tree: TreeSample) -> list[Process]:
        order = self._families.of(self._members, tree.root)
        found = [self._process(process, depth, tree) for process, depth in order]
        books = {process: ledger.batches for process, ledger in self._ledgers.items()}
        return with_queues(found, books)

    def _process(self, process: ProcessId, depth: int, tree: TreeSample) -> Process:
        """One process; those that have ended, often hundreds, are built once."""
        member = self._members[process]
        found = self._gone.get(process)
        if found is None or found.depth != depth:
            found = build_process(
                member,
                self._ledgers.get(process),
                tree.gpus or (),
                self._history.trends(process),
                self._at_s,
                tree.ticks_per_s,
                depth=depth,
                shm_bytes=self._mapped.of(member.sample),
            )
            if member.ended is not None:
                self._gone[process] = found
        return found

    def _mark_events(self, at_s: float) -> None:
        marks = self._events_marks
        marks.append((at_s, self._event_count))
        while len(marks) > 2 and marks[1][0] <= at_s - EVENTS_WINDOW_S:
            marks.pop(0)

    def _events_per_s(self) -> float | None:
        if not self._ledgers or not self._events_marks:
            return None
        (began_s, began), (now_s, now) = self._events_marks[0], self._events_marks[-1]
        return (now - began) / (now_s - began_s) if now_s > began_s else None


def _by_thread(stacks: Iterable[StackSample], equal: EqualStacks) -> dict[int, StackSample]:
    """Stacks by kernel thread id, without what a fork inherited."""
    out: dict[int, StackSample] = {}
    for index, stack in enumerate(stacks):
        frames = equal.one_of(program_frames(stack.frames))
        tid = stack.tid if stack.tid is not None else -1 - index
        out[tid] = stack if frames is stack.frames else replace(stack, frames=frames)
    return out


def _end_details(ended: Ended) -> dict[str, object]:
    return {"exit_code": ended.exit_code, "signal": ended.signal}
