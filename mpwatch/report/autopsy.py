"""The last events of dead processes, and the findings about them.

The files that their hooks left are decoded into the inputs of a live observer and folded, so that
the rules for running jobs apply to dead ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.hook.left_files import (
    HookFiles,
    folders_of_user,
    has_ring,
    own_folders,
    read_hook_files,
)
from mpwatch.collect.process import procfs
from mpwatch.describe.findings import effects_below_causes, unresolved
from mpwatch.diagnose.engine import Engine
from mpwatch.hook import wire
from mpwatch.model.events import LOADER_CALLS, HookEvent, HookNote, HookSlice, Input
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import Ended, ProcSample, TreeSample
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import bytes_text, count_text, seconds_text
from mpwatch.observe.state.event_log import note_words
from mpwatch.observe.state.fold import Fold
from mpwatch.report.json import utc_text
from mpwatch.report.table import TextStyle
from mpwatch.report.text import finding_lines, heading, labelled

NO_EXIT = "no exit was recorded: a signal (SIGKILL, SIGBUS, SIGSEGV), the OOM killer, or os._exit"
_BEGINS: Mapping[int, int] = {wire.LOADER_FETCH_BEGIN: wire.LOADER_FETCH}
"""Records of the start of a call, with the record of its end on the same thread."""


class NothingLeft(LookupError):
    """There is nothing to examine; the message is one sentence for the user."""


class Dead(Struct, frozen=True):
    """One dead process."""

    files: HookFiles
    parent: ProcessId | None
    worker_id: int | None
    unfinished: HookEvent | None
    """A call that started and did not end."""
    exit_code: int | None = None
    """As its parent got it from `wait`; -9 for signal 9."""


class Autopsy(Struct, frozen=True):
    """One dead job, or the part of it that left files."""

    dead: tuple[Dead, ...]
    """Parents before children."""
    snapshot: Snapshot
    """Its last state, with findings."""
    parent: ProcessId | None = None
    """The parent of the first process, if it is not in `dead`."""
    parent_words: str = ""
    """The state of that parent, one sentence."""

    @property
    def root(self) -> ProcessId:
        """The process that names the job."""
        return self.parent or self.dead[0].files.process


def autopsies(subject: str, proc: str = "/proc") -> tuple[Autopsy, ...]:
    """Examine the hook files of a process, or of all processes in a folder.

    Args:
        subject: A pid, or a folder with hook files.
        proc: Where procfs is mounted.

    Returns:
        One result for each job, oldest first; for a pid, that process and its descendants.

    Raises:
        NothingLeft: There is no file of a dead process.
    """
    if subject.isascii() and subject.isdecimal():
        return _of_process(int(subject), proc)
    all_files = read_hook_files([subject], proc)
    dead = [files for files in all_files if not files.is_alive]
    if not os.path.isdir(subject):
        raise NothingLeft(f"{subject} is neither a process ID nor a folder.")
    if not dead:
        running = (
            f" ({len(all_files)} still run{'s' if len(all_files) == 1 else ''})"
            if all_files
            else ""
        )
        raise NothingLeft(f"There are no hook files of dead processes in {subject}{running}.")
    return examine(dead, proc)


def examine(all_files: Sequence[HookFiles], proc: str = "/proc") -> tuple[Autopsy, ...]:
    """One result for each job among the hook files of dead processes."""
    starts = _starts(all_files)
    parents = _parents(all_files, starts)
    jobs: dict[ProcessId, list[HookFiles]] = {}
    for files in all_files:
        jobs.setdefault(_line(files.process, parents)[-1], []).append(files)
    return tuple(_examine_job(root, in_job, starts, parents, proc) for root, in_job in jobs.items())


def last_state(dead: Sequence[Dead], root: ProcessId) -> Snapshot:
    """The last state of the job, with the findings from just before and after its end."""
    fold, engine = Fold(), Engine()
    for each in _inputs(dead, root):
        fold.apply(each)
    before = engine.diagnosed(fold.snapshot(), fold.history())
    for one in sorted(dead, key=lambda one: one.files.last_ns):
        fold.apply(ended(one))
    after = engine.diagnosed(fold.snapshot(), fold.history())
    found = {finding.key for finding in after.findings}
    earlier = (finding for finding in before.findings if finding.key not in found)
    return replace(after, findings=tuple(effects_below_causes([*after.findings, *earlier])))


def ended(dead: Dead) -> Ended:
    """The exit status of a process: from its parent, else from its own notes."""
    files, code = dead.files, dead.exit_code
    at_s = files.last_ns / 1e9
    if code is not None:
        return Ended(files.process, at_s, *((None, -code) if code < 0 else (code, None)))
    for note in reversed(files.notes):
        code = note.data.get("code")
        if note.kind == "exit" and isinstance(code, int):
            return Ended(files.process, at_s, exit_code=code)
        if note.kind == "exception" and note.data.get("where") == "main":
            return Ended(files.process, at_s, exit_code=1)
    return Ended(files.process, at_s, problem=NO_EXIT)


def _of_process(pid: int, proc: str) -> tuple[Autopsy, ...]:
    all_files = read_hook_files(own_folders(), proc)
    parents = _parents(all_files, _starts(all_files))
    lines = {files.process: _line(files.process, parents) for files in all_files}
    # A process without a file is known as the parent of others.
    candidates = [process for line in lines.values() for process in line if process.pid == pid]
    if not candidates:
        folders = folders_of_user(os.geteuid(), os.environ.get("XDG_RUNTIME_DIR"))
        raise NothingLeft(
            f"Process {pid} left no hook file in {' or '.join(folders)}: it had no hook, exited"
            " normally, or died more than a day ago."
        )
    subject = max(candidates, key=lambda process: process.start_ticks)
    family = [files for files in all_files if subject in lines[files.process]]
    dead = [files for files in family if not files.is_alive]
    if not dead:
        raise NothingLeft(f"Process {pid} and its descendants still run: mpwatch attach {pid}.")
    return examine(dead, proc)


def _starts(all_files: Iterable[HookFiles]) -> dict[ProcessId, HookNote]:
    """The notes of parents about the starts of the other processes, by process."""
    all_files = tuple(all_files)
    starts: dict[ProcessId, HookNote] = {}
    for note in (note for files in all_files for note in files.notes if note.kind == "start"):
        # Of several processes with this pid, the first that started after the parent did.
        children = [
            files.process
            for files in all_files
            if files.process.pid == note.data.get("pid")
            and files.process.start_ticks >= note.process.start_ticks
            and files.process != note.process
        ]
        if children:
            starts.setdefault(min(children, key=lambda child: child.start_ticks), note)
    return starts


def _parents(
    all_files: Sequence[HookFiles], starts: Mapping[ProcessId, HookNote]
) -> dict[ProcessId, ProcessId]:
    """The parent of each process: from the parent's notes, else from the child's own ring.

    A parent may have no file: it had no hook, or it exited normally.
    """
    parents = {process: note.process for process, note in starts.items()}
    for files in all_files:
        if files.parent is not None and files.process not in parents:
            parents[files.process] = _known_by_ticks(files.parent, files.process, all_files)
    return parents


def _known_by_ticks(
    parent: ProcessId, child: ProcessId, all_files: Iterable[HookFiles]
) -> ProcessId:
    """Complete a parent without start time: the last with its pid that started before the child."""
    if parent.start_ticks:
        return parent
    starts = [
        files.process.start_ticks
        for files in all_files
        if files.process.pid == parent.pid and files.process.start_ticks <= child.start_ticks
    ]
    return ProcessId(parent.pid, max(starts, default=0))


def _line(process: ProcessId, parents: Mapping[ProcessId, ProcessId]) -> tuple[ProcessId, ...]:
    """A process and its ancestors, nearest first."""
    line = [process]
    while (parent := parents.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return tuple(line)


def _examine_job(
    root: ProcessId,
    all_files: Sequence[HookFiles],
    starts: Mapping[ProcessId, HookNote],
    parents: Mapping[ProcessId, ProcessId],
    proc: str,
) -> Autopsy:
    ordered = sorted(
        all_files, key=lambda files: (files.process != root, files.process.start_ticks)
    )
    codes = _exit_codes(all_files)
    dead = tuple(
        replace(
            _dead(files, starts.get(files.process), parent := parents.get(files.process)),
            exit_code=codes.get((parent, files.process.pid)),
        )
        for files in ordered
    )
    state = last_state(dead, root)
    if any(one.files.process == root for one in dead):
        return Autopsy(dead, state)
    return Autopsy(dead, state, root, _absent_words(root, dead, proc))


def _absent_words(parent: ProcessId, dead: Sequence[Dead], proc: str) -> str:
    """The state of a parent that is not in `dead`, one sentence."""
    them, first = "them" if len(dead) > 1 else "it", dead[0].files
    found = procfs.read_stat(proc, parent.pid)
    is_same = found is not None and (
        found.process == parent
        or (parent.start_ticks == 0 and found.start_ticks <= first.process.start_ticks)
    )
    if is_same:
        return f"{parent.pid}, which started {them}, still runs: mpwatch attach {parent.pid}"
    if has_ring(first.folder, parent):
        return f"{parent.pid}, which started {them}, died too: mpwatch autopsy {parent.pid}"
    return (
        f"{parent.pid}, which started {them}, left no file: it had no hook, or it exited normally"
    )


def _exit_codes(all_files: Sequence[HookFiles]) -> dict[tuple[ProcessId | None, int], int]:
    """Exit codes of children as their parents got them, by parent and pid of the child."""
    return {
        (files.process, event.key): event.aux - wire.EXIT_BASE
        for files in all_files
        for event in files.events
        if event.kind == wire.PROCESS_JOIN and event.aux
    }


def _dead(files: HookFiles, start: HookNote | None, parent: ProcessId | None) -> Dead:
    worker_id = start.data.get("worker_id") if start is not None else None
    fetches = (e.key2 for e in files.events if e.kind in (*_BEGINS, *_BEGINS.values()))
    if not isinstance(worker_id, int):
        worker_id = next(fetches, None)
    return Dead(
        files=files,
        parent=parent,
        worker_id=worker_id,
        unfinished=unfinished(files.events),
    )


def unfinished(events: Iterable[HookEvent]) -> HookEvent | None:
    """The last call whose start was recorded and whose end was not."""
    begun: dict[tuple[int, int], HookEvent] = {}
    for event in events:
        if event.kind in _BEGINS:
            begun[event.tid, _BEGINS[event.kind]] = event
        else:
            begun.pop((event.tid, event.kind), None)
    return max(begun.values(), key=lambda event: event.at_ns, default=None)


def _inputs(dead: Sequence[Dead], root: ProcessId) -> list[Input]:
    """The inputs of a live observer until the end: one sample of the tree, then the events."""
    first_ns = min(one.files.monotonic_ns for one in dead)
    timed: list[tuple[int, Input]] = []
    for one in dead:
        files = one.files
        if files.events:
            part = HookSlice(files.process, files.events[-1].at_ns / 1e9, files.events, files.lost)
            timed.append((files.events[-1].at_ns, part))
        timed += [(note.at_ns, note) for note in files.notes]
    timed.sort(key=lambda pair: pair[0])
    return [_tree(dead, root, first_ns), *(each for _, each in timed)]


def _tree(dead: Sequence[Dead], root: ProcessId, first_ns: int) -> TreeSample:
    at_s, wall_s = first_ns / 1e9, dead[0].files.wall_s(first_ns)
    system = os.uname()
    return TreeSample(
        at_s=at_s,
        wall_s=wall_s,
        root=root,
        host=HostSample(at_s, wall_s, system.nodename, system.release),
        processes=tuple(_sample(one, root, at_s) for one in dead),
    )


def _sample(one: Dead, root: ProcessId, at_s: float) -> ProcSample:
    process = one.files.process
    role: Role = "spawned"
    if process == root:
        role = "main"
    elif one.worker_id is not None:
        role = "loader-worker"
    elif "PoolWorker-" in one.files.name:  # as multiprocessing.Pool names them
        role = "pool-worker"
    return ProcSample(
        process=process,
        at_s=at_s,
        parent_pid=one.parent.pid if one.parent else 0,
        name="python",
        cmdline=(),
        state="S",
        role=role,
        worker_id=one.worker_id,
        is_python=True,
        problems=one.files.problems,
    )


LABEL_WIDTH = 11
EVENTS_SHOWN = 8
NOTES_SHOWN = 6
COPIED = "the records above are the last copy of a ring in memory; later events are lost"
_NOTES_OMITTED = ("start", "call-site")


def autopsy_text(autopsies: Sequence[Autopsy], *, style: TextStyle | None = None) -> str:
    """Every dead process: exit status, unfinished call, last events and notes; then findings."""
    style = style or TextStyle()
    lines: list[str] = []
    for autopsy in autopsies:
        if len(autopsies) > 1 or autopsy.parent_words:
            count = len(autopsy.dead)
            what = f"{count} dead process{'es' if count != 1 else ''}"
            lines += heading(f"job of {autopsy.root.pid}", what, style)[1:]
            if autopsy.parent_words:
                lines += style.wrap(autopsy.parent_words, "  ", "  ")
            lines.append("")
        for dead in autopsy.dead:
            lines += [*_process(dead, autopsy, style), ""]
        findings = unresolved(autopsy.snapshot)
        if findings:
            lines += heading("findings", "", style)[1:]
            lines += finding_lines(findings, autopsy.snapshot, style)
    return "\n".join(lines[:-1])


def _process(dead: Dead, autopsy: Autopsy, style: TextStyle) -> list[str]:
    files = dead.files
    known = autopsy.snapshot.get(files.process)
    name = known.label if known else "process"
    parent = f" of {dead.parent.pid}" if dead.parent else ""
    moment = _utc(files, files.last_ns)
    title = style.paint(f"{files.process.pid} {name}{parent}", "strong")
    lines = [f"{title}  last event {moment}"]
    lines += labelled("ended", ended(dead).words.removeprefix("unknown: "), style, LABEL_WIDTH)
    if dead.unfinished is not None:
        started = f"started {_earlier(dead.unfinished, files.last_ns)}"
        lines += labelled("unfinished", f"{_call(dead.unfinished)}, {started}", style, LABEL_WIDTH)
    for number, event in enumerate(files.events[-EVENTS_SHOWN:]):
        words = f"{_earlier(event, files.last_ns):>15}  {_call(event)}"
        lines += labelled("last" if number == 0 else "", words, style, LABEL_WIDTH)
    notes = [note for note in files.notes if note.kind not in _NOTES_OMITTED]
    for number, note in enumerate(notes[-NOTES_SHOWN:]):
        lines += labelled(
            "notes" if number == 0 else "", note_words(note.kind, note.data), style, LABEL_WIDTH
        )
    if files.copied_ns:
        lines += labelled("copied", f"{_utc(files, files.copied_ns)}: {COPIED}", style, LABEL_WIDTH)
    if files.lost:
        lines += labelled(
            "older", f"{count_text(files.lost)} records were overwritten", style, LABEL_WIDTH
        )
    for problem in files.problems:
        lines += labelled("problem", problem, style, LABEL_WIDTH)
    return lines


def _utc(files: HookFiles, at_ns: int) -> str:
    """A time of CLOCK_MONOTONIC as `2026-01-31 12:00:00.000 UTC`."""
    return utc_text(files.wall_s(at_ns)).replace("T", " ").replace("+00:00", " UTC")


def _call(event: HookEvent) -> str:
    """`share, 16.0K, took 45 us`."""
    if event.kind == wire.KNOWN:  # no call: the hook found it when it was attached
        size = bytes_text(event.bytes) if event.bytes else "freed here meanwhile"
        return f"shared before the hook was attached: a tensor's storage, {size}"
    parts = [wire.KIND_NAMES.get(event.kind, f"kind {event.kind}")]
    if event.kind in LOADER_CALLS:
        parts.append(f"batch {event.aux}")
    if event.bytes:
        parts.append(bytes_text(event.bytes))
    if event.duration_ns and event.kind != wire.LOADER_FETCH_BEGIN:
        parts.append(f"took {seconds_text(event.duration_ns / 1e9)}")
    if event.flags & wire.FLAG_RAISED:
        parts.append("raised")
    return ", ".join(parts)


def _earlier(event: HookEvent, last_ns: int) -> str:
    """How long before the last event: `1.7 s earlier`."""
    return f"{seconds_text(max(0, last_ns - event.at_ns) / 1e9)} earlier"
