"""Named torch segments whose creator has exited and that no process removes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.resources import segment_bytes
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import SegmentId, SegmentUse
from mpwatch.model.snapshot import Segment, Snapshot
from mpwatch.model.units import bytes_text

RULE = "file-system-strategy-leak"
OTHER_JOBS = "other jobs"
"""The subject of the finding about segments of other jobs."""
SETTLED_S = 10.0
"""torch_shm_manager removes the files of its clients 2 s after the last client has exited."""
WORTH_BYTES = 2**20
WORTH_FILES = 100
"""Less than this is not reported."""
WORTH_OF_OTHERS_BYTES = 8 * 2**20
"""What other jobs left concerns this job only as space that it takes, and small files take none."""
WORTH_WARNING = 0.1
"""Part of /dev/shm from which leaked segments are a warning."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for named segments whose creator has exited and that no process maps.

    One finding is for segments of this job, one for those of other jobs on the machine. A segment
    that a process still maps may outlive its creator on purpose: the strategy is made for that.
    """
    in_use = {s.segment for s in index.snapshot.segments if s.mappers or s.holders}
    left = {
        s.segment: s for s in index.snapshot.host.left_segments or () if _is_old(index.snapshot, s)
    }
    known: dict[SegmentId, Segment | SegmentUse] = {
        k: s for k, s in left.items() if k not in in_use
    }
    known |= {s.segment: s for s in index.snapshot.segments if _is_left(index.snapshot, s)}
    own_pids = {process.pid for process in index.snapshot.processes}
    ours = [segment for segment in known.values() if segment.creator_pid in own_pids]
    others = [segment for segment in known.values() if segment.creator_pid not in own_pids]
    if _is_worth(ours, WORTH_BYTES):
        yield _ours(index.snapshot, ours)
    if _is_worth(others, WORTH_OF_OTHERS_BYTES):
        yield _others(others)


def _held_bytes(left: Sequence[Segment | SegmentUse]) -> int:
    return segment_bytes(left)


def _is_worth(left: Sequence[Segment | SegmentUse], least_bytes: int) -> bool:
    """Whether the segments are worth a finding."""
    return len(left) >= WORTH_FILES or _held_bytes(left) >= least_bytes


def _ours(snapshot: Snapshot, left: Sequence[Segment | SegmentUse]) -> Finding:
    """The finding for segments of this job."""
    total, shm = _held_bytes(left), snapshot.host.shm
    is_much = shm is not None and total >= WORTH_WARNING * shm.total_bytes
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if is_much else Severity.INFO,
        summary=(
            f"{_count(left)} made by processes of this job that have exited "
            f"{'holds' if len(left) == 1 else 'hold'} {bytes_text(total)} of /dev/shm"
        ),
        evidence=_evidence(left, "of this job, exited"),
        cause=_CAUSE,
        advice=_ADVICE,
    )


def _others(left: Sequence[Segment | SegmentUse]) -> Finding:
    """The finding for segments of other jobs: information only, as this job is not at fault."""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        subject=OTHER_JOBS,
        summary=(
            f"not of this job: {_count(left)} of exited processes of other jobs on this machine "
            f"{'holds' if len(left) == 1 else 'hold'} {bytes_text(_held_bytes(left))} of /dev/shm"
        ),
        evidence=_evidence(left, "not of this job, no longer running"),
        cause=f"Another job left these files. {_CAUSE}",
        advice=_ADVICE,
    )


def _count(left: Sequence[Segment | SegmentUse]) -> str:
    return f"{len(left)} segment{'' if len(left) == 1 else 's'}"


def _evidence(left: Sequence[Segment | SegmentUse], maker: str) -> tuple[str, ...]:
    """The processes that made the segments, and one example."""
    makers = sorted({segment.creator_pid for segment in left if segment.creator_pid is not None})
    return (
        f"made by pid {', '.join(map(str, makers[:6]))} ({maker})",
        f"no process of this job maps them, for example {left[0].path}",
    )


_CAUSE = (
    "Under the strategy file_system a shared tensor is a named file. torch_shm_manager removes the "
    "files of processes that have exited, unless it is killed itself: when the whole process tree "
    "is killed at once (container stop, scheduler, kill of the group), the files stay."
)
_ADVICE = (
    "mpwatch clean lists segments that no process maps, and mpwatch clean --yes removes them. "
    "Where containers share /dev/shm, pids are ambiguous: check the list first. To avoid this, use "
    "the strategy file_descriptor with a higher limit of descriptors, and stop jobs with SIGTERM "
    "first."
)


def _is_old(snapshot: Snapshot, use: SegmentUse) -> bool:
    """Whether a file is older than torch_shm_manager takes to remove it."""
    return use.changed_wall_s is None or snapshot.wall_s - use.changed_wall_s >= SETTLED_S


def _is_left(snapshot: Snapshot, segment: Segment) -> bool:
    """Whether a segment has no living creator, no mapping and no descriptor."""
    if segment.kind != "torch-named" or not segment.is_linked:
        return False
    if segment.mappers or segment.holders or segment.creator_pid is None:
        return False
    age_s = segment.age_s(snapshot.wall_s)
    if age_s is not None and age_s < SETTLED_S:
        return False
    maker = snapshot.get(segment.creator)
    if maker is not None:
        return maker.is_gone
    return all(p.pid != segment.creator_pid for p in snapshot.living())
