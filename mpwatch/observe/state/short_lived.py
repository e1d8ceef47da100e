"""Children that start and exit between two readings: known from the hook of their parent alone.

That hook notes each start of a child, and the exit code when the parent joins it. A child that
lived for some milliseconds was never read; that it failed is worth showing all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookNote
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, ProcSample

SETTLED_S = 1.0
"""A start is noted before the child is read, at most this long before."""
FORGOTTEN_S = 120.0
"""A child that has not been joined by then is not waited for."""
PENDING_LIMIT = 256


class ShortLived:
    """Finds children that were started and joined with an error, and never read."""

    def __init__(self) -> None:
        self._births: dict[tuple[ProcessId, int], HookNote] = {}
        self._codes: dict[tuple[ProcessId, int], tuple[float, int]] = {}

    @property
    def has_any(self) -> bool:
        """Whether there are children to look for."""
        return bool(self._births)

    def add_note(self, note: HookNote) -> None:
        """Remember the start of a child."""
        pid = note.data.get("pid")
        if note.kind == "birth" and isinstance(pid, int) and len(self._births) < PENDING_LIMIT:
            self._births[note.process, pid] = note

    def add_event(self, parent: ProcessId, event: HookEvent) -> None:
        """Remember the exit code of a joined child."""
        if event.kind == wire.PROCESS_JOIN and event.aux and len(self._codes) < PENDING_LIMIT:
            ended_s = (event.at_ns + event.duration_ns) / 1e9
            self._codes[parent, event.key] = ended_s, event.aux - wire.EXIT_BASE

    def missed(
        self,
        at_s: float,
        known: Mapping[int, ProcessId],
        samples: Mapping[ProcessId, ProcSample],
        ticks_per_s: int,
    ) -> Iterator[tuple[ProcSample, Ended]]:
        """The children that failed and were never read, with their exits.

        Args:
            at_s: The time of the last reading of the job.
            known: Every process so far by its pid.
            samples: The last samples of possible parents.
            ticks_per_s: Of the clock of `ProcessId.start_ticks`.
        """
        for key, note in list(self._births.items()):
            if at_s - note.at_ns / 1e9 < SETTLED_S:
                continue
            parent, pid = key
            reading = samples.get(parent)
            is_known = pid in known and known[pid].start_ticks >= parent.start_ticks
            is_elsewhere = reading is None or reading.ns_pid not in (None, parent.pid)
            if is_known or is_elsewhere or at_s - note.at_ns / 1e9 > FORGOTTEN_S:
                del self._births[key]
            elif reading is not None and key in self._codes:
                ended_s, code = self._codes[key]
                del self._births[key]
                if code:
                    yield _ended_child(reading, note, pid, code, ended_s, ticks_per_s)
        self._codes = {key: code for key, code in self._codes.items() if key in self._births}


def _ended_child(
    parent: ProcSample, note: HookNote, pid: int, code: int, ended_s: float, ticks_per_s: int
) -> tuple[ProcSample, Ended]:
    """A sample with nothing but its identity, and its exit."""
    born_s = note.at_ns / 1e9
    # The monotonic clock began with the machine, as the ticks did, unless it was suspended.
    process = ProcessId(pid, max(parent.process.start_ticks, int(born_s * ticks_per_s)))
    worker_id, method = note.data.get("worker_id"), note.data.get("method")
    is_worker = isinstance(worker_id, int)
    sample = ProcSample(
        process=process,
        at_s=ended_s,
        parent_pid=parent.process.pid,
        name=parent.name,
        cmdline=parent.cmdline,
        state="X",
        role="loader-worker" if is_worker else "spawned",
        worker_id=worker_id if is_worker else None,
        start_method=method if method in ("fork", "spawn", "forkserver") else None,
        is_python=True,
    )
    signal = -code if code < 0 else None
    return sample, Ended(process, ended_s, None if code < 0 else code, signal)
