"""Shared-memory files joined over all processes, and the lines that make these and other files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import eq, is_
from typing import TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.model.events import HookNote
from mpwatch.model.ids import ProcessId, SegmentId, SegmentUse
from mpwatch.model.samples import Frame, ProcSample, StackSample
from mpwatch.model.snapshot import FileLine, Segment


class _Joined(Struct, frozen=True):
    """One file with its holders."""

    best: SegmentUse
    """The use whose sample says most."""
    mappers: tuple[ProcessId, ...]
    holders: tuple[ProcessId, ...]


CALL_SITE_KEPT_S = 5.0
"""A call site may be reported before its segment is read."""


class CallSites:
    """Lines of code that allocated a segment, where a hook sampled them."""

    def __init__(self) -> None:
        self.by_segment: dict[SegmentId, str] = {}
        self._noted_s: dict[SegmentId, float] = {}

    def add(self, note: HookNote) -> None:
        """Take the call site of a note; one that is not well-formed is ignored."""
        inode, device, site = (note.data.get(name) for name in ("inode", "device", "site"))
        if isinstance(inode, int) and isinstance(device, int) and isinstance(site, str):
            self.by_segment[SegmentId(device, inode)] = site
            self._noted_s[SegmentId(device, inode)] = note.at_ns / 1e9

    def forget_gone(self, segments: Iterable[Segment], at_s: float) -> None:
        """Drop the call sites of removed segments: their inodes will be used again."""
        if not self._noted_s:
            return
        present = {segment.segment for segment in segments}
        for segment, noted_s in list(self._noted_s.items()):
            if segment not in present and at_s - noted_s > CALL_SITE_KEPT_S:
                del self._noted_s[segment], self.by_segment[segment]


_Uses: TypeAlias = dict[SegmentId, dict[ProcessId, SegmentUse]]
"""By file: how each process uses it."""


class SegmentTable:
    """Joins the segments of all processes, and again only those whose users have changed.

    Forked workers map every semaphore made before them: 65 processes have 7,200 uses of 460 files,
    few of which change from one reading to the next. So a reading takes 1.8 ms, and not 19 ms.
    """

    def __init__(self) -> None:
        self._held: dict[ProcessId, tuple[SegmentUse, ...]] = {}
        """The segments of each process, in the order of the processes. A process in which nothing
        has changed has the same tuple as before."""
        self._uses: _Uses = {}
        self._joins: list[tuple[SegmentId, _Joined]] = []
        self._made: dict[SegmentId, tuple[_Joined, Segment]] = {}
        self._shown: tuple[Segment, ...] = ()
        self._known: dict[int, ProcessId] = {}
        self._call_sites: dict[SegmentId, str] = {}
        """What creators and call sites of `_shown` were taken from."""

    def join(
        self,
        samples: Iterable[ProcSample],
        known: Mapping[int, ProcessId],
        call_sites: Mapping[SegmentId, str],
    ) -> tuple[Segment, ...]:
        """One `Segment` for each file that any of the processes holds, largest first.

        Args:
            samples: The newest reading of each living process.
            known: Every process seen so far by pid, dead ones included: creators outlive their
                names.
            call_sites: Lines of code that allocated a segment, where a hook sampled them.
        """
        held = {sample.process: sample.segments or () for sample in samples}
        before, self._held = self._held, held
        is_same = known == self._known and call_sites == self._call_sites
        if len(held) != len(before) or not all(map(eq, held, before)):
            # A process has started or exited: holders are in the order of the processes.
            self._uses = {}
            self._rejoin(self._note({}, held))
        elif not all(map(is_, held.values(), before.values())):
            self._rejoin(self._note(before, held))
        elif is_same:
            return self._shown
        self._known, self._call_sites = dict(known), dict(call_sites)
        made = [self._segment(key, join, known, call_sites) for key, join in self._joins]
        if len(made) != len(self._shown) or not all(map(is_, made, self._shown)):
            self._shown = tuple(made)
            self._made = {key: self._made[key] for key, _ in self._joins}
        return self._shown

    def _segment(
        self,
        key: SegmentId,
        join: _Joined,
        known: Mapping[int, ProcessId],
        call_sites: Mapping[SegmentId, str],
    ) -> Segment:
        """One file; the same object as before if nothing has changed."""
        pid, call_site = join.best.creator_pid, call_sites.get(key)
        creator = None if pid is None else known.get(pid)
        before = self._made.get(key)
        if before is not None and before[0] is join:
            segment = before[1]
            if segment.creator == creator and segment.call_site == call_site:
                return segment
        segment = _segment(join, creator, call_site)
        self._made[key] = join, segment
        return segment

    def _note(
        self,
        before: Mapping[ProcessId, tuple[SegmentUse, ...]],
        held: Mapping[ProcessId, tuple[SegmentUse, ...]],
    ) -> set[SegmentId]:
        """Note what processes hold now; returns the files of which anything has changed."""
        touched: set[SegmentId] = set()
        for process, now in held.items():
            then = before.get(process, ())
            if now is then:
                continue
            uses = {use.segment: use for use in now}
            # A damaged recording may list one segment of a process twice.
            for segment in {use.segment for use in then} - uses.keys():
                touched.add(segment)
                del self._uses[segment][process]
            for segment, use in uses.items():
                holders = self._uses.setdefault(segment, {})
                if holders.get(process) != use:
                    touched.add(segment)
                    holders[process] = use
        return touched

    def _rejoin(self, touched: set[SegmentId]) -> None:
        """Join these files again and sort all of them."""
        joins = {key: join for key, join in self._joins if key in self._uses}
        places = {process: n for n, process in enumerate(self._held)}
        for segment in touched:
            uses = self._uses[segment]
            if uses:
                joins[segment] = join_uses(sorted(uses.items(), key=lambda each: places[each[0]]))
            else:
                del self._uses[segment]
                joins.pop(segment, None)
        self._joins = sorted(
            joins.items(), key=lambda each: (-(each[1].best.size_bytes or 0), each[0])
        )


def join_uses(uses: Sequence[tuple[ProcessId, SegmentUse]]) -> _Joined:
    """One file with its holders, in the order of the processes."""
    # Files are filled and hardly ever emptied: the sample with the most bytes is the newest.
    best = max(uses, key=lambda each: _allocated(each[1]))[1]
    return _Joined(
        best,
        tuple([process for process, use in uses if use.ranges]),
        tuple([process for process, use in uses if not use.ranges]),
    )


def _allocated(use: SegmentUse) -> int:
    """Bytes it occupied when it was read; -1 where that is not known."""
    return -1 if use.allocated_bytes is None else use.allocated_bytes


def _segment(join: _Joined, creator: ProcessId | None, call_site: str | None) -> Segment:
    use = join.best
    return Segment(
        segment=use.segment,
        path=use.path,
        kind=use.kind,
        is_linked=use.is_linked,
        creator_pid=use.creator_pid,
        creator=creator,
        mappers=join.mappers,
        holders=join.holders,
        size_bytes=use.size_bytes,
        allocated_bytes=use.allocated_bytes,
        changed_wall_s=use.changed_wall_s,
        call_site=call_site,
    )


def mapped_bytes(uses: Iterable[SegmentUse]) -> int:
    """Bytes of the tensor and named segments among these, each file once.

    Semaphores are left out: they are pages of 32 bytes that would only blur the number.
    """
    return sum(
        use.size_bytes or 0 for use in uses if use.kind != "semaphore" and (use.ranges or use.fds)
    )


# --- lines that make files ------------------------------------------------------------------------

LINES_LIMIT = 32
"""Of the whole job; the line that was not seen for longest is dropped."""
DEPTH = 16
"""Frames within which the call has to be."""
MAKERS: Mapping[str, frozenset[str]] = {
    "tempfile.py": frozenset(
        ("_mkstemp_inner", "mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryFile")
    ),
    "shared_memory.py": frozenset(("__init__",)),
    "shutil.py": frozenset(("copyfileobj", "copyfile", "copy", "copy2")),
    "pathlib.py": frozenset(("write_bytes", "write_text")),
    "zipfile.py": frozenset(("write", "writestr", "_write_end_record")),
    "npyio.py": frozenset(("save", "savez", "savez_compressed", "_savez", "savetxt")),
    "_npyio_impl.py": frozenset(("save", "savez", "savez_compressed", "_savez", "savetxt")),
    "serialization.py": frozenset(("save", "_save", "_legacy_save")),
    "Image.py": frozenset(("save",)),
    "feather_format.py": frozenset(("to_feather",)),
    "parquet.py": frozenset(("to_parquet",)),
    "core.py": frozenset(("imwrite", "mimwrite")),
}
"""Functions that make a file, by the module: CPython 3.10 to 3.15, numpy 1.2x to 2.x, torch 2.x,
Pillow, pandas, imageio 2."""


class FileLines:
    """Counts how often each line of the program was seen to make a file.

    Stacks are taken a few times a second in the whole job. A line in which its process spends a
    hundredth of the time is found within half a minute, one that takes microseconds is not.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[ProcessId, str, int | None], FileLine] = {}

    def add_stacks(self, stacks: Sequence[StackSample]) -> None:
        """Note the lines of the program from which stacks lead into making a file."""
        for stack in stacks:
            place = _making(stack.frames)
            if place is not None:
                self._add(FileLine(stack.process, place, 1, None))

    def add_note(self, note: HookNote) -> None:
        """Note the line of a `call-site`: one that made a segment of so many bytes."""
        site, size = note.data.get("site"), note.data.get("bytes")
        if isinstance(site, str) and isinstance(size, int):
            self._add(FileLine(note.process, site, 1, size))

    def lines(self) -> tuple[FileLine, ...]:
        """The lines, those seen most often first."""
        return tuple(sorted(self._lines.values(), key=lambda line: -line.times))

    def _add(self, line: FileLine) -> None:
        key = (line.process, line.place, line.size_bytes)
        known = self._lines.pop(key, None)
        self._lines[key] = line if known is None else line._replace(times=known.times + 1)
        if len(self._lines) > LINES_LIMIT:
            del self._lines[next(iter(self._lines))]


def _making(frames: Sequence[Frame]) -> str | None:
    """The line of the program that makes a file at this moment; `None` if none does."""
    makes = False
    for frame in frames[:DEPTH]:
        if not is_library(frame):
            return frame_words(frame) if makes else None
        makers = MAKERS.get(frame.file.rpartition("/")[2])
        makes = makes or (makers is not None and frame.function in makers)
    return None
