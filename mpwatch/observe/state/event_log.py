"""The log of a job, bounded: events, notes (each once), and the errors that rules read."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping

from mpwatch.model.events import HookNote, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import LogEntry

KEPT = 2000
ERRORS_KEPT = 500
"""Entries with a known error message that are kept after the log has dropped them."""
REPEATS_KEPT = 8
"""Of these, entries of one process with the same tags: one that fails in a loop must not displace
the errors of other processes. All of them are in the log, and `dropped` counts them there."""


class EventLog:
    """A bounded log; the oldest entries are dropped and counted."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=KEPT)
        self._errors: deque[LogEntry] = deque()
        self._repeats: Counter[tuple[ProcessId | None, tuple[str, ...]]] = Counter()
        """How many of `_errors` each process has of each kind."""
        self._sequence = 0
        self._wall_minus_monotonic_s = 0.0
        self._view: tuple[LogEntry, ...] | None = ()
        self._errors_view: tuple[LogEntry, ...] | None = ()

    def set_clock(self, at_s: float, wall_s: float) -> None:
        """Set the relation of monotonic and wall time, from a reading that has both."""
        self._wall_minus_monotonic_s = wall_s - at_s

    def add(
        self,
        at_s: float,
        kind: str,
        process: ProcessId | None,
        words: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Add an entry; known error messages are matched here, once."""
        # Imported for the first entry: it takes a fortieth of the time to the first screen.
        from mpwatch.describe.error_messages import tags_of

        wall_s = at_s + self._wall_minus_monotonic_s
        details = details or {}
        tags = tags_of(kind, words, details)
        entry = LogEntry(self._sequence, at_s, wall_s, kind, process, words, details, tags)
        self._sequence += 1
        self._entries.append(entry)
        self._view = None
        if tags:
            self._keep_error(entry)

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """The entries kept, oldest first; the same object until one is added."""
        if self._view is None:
            self._view = tuple(self._entries)
        return self._view

    @property
    def errors(self) -> tuple[LogEntry, ...]:
        """The entries with a known error message, oldest first."""
        if self._errors_view is None:
            self._errors_view = tuple(self._errors)
        return self._errors_view

    @property
    def dropped(self) -> int:
        """How many entries are no longer kept."""
        return self._sequence - len(self._entries)

    def _keep_error(self, entry: LogEntry) -> None:
        """Keep an error beyond the log, within the two limits."""
        if self._repeats[entry.process, entry.tags] >= REPEATS_KEPT:
            return
        self._repeats[entry.process, entry.tags] += 1
        self._errors.append(entry)
        self._errors_view = None
        if len(self._errors) > ERRORS_KEPT:
            oldest = self._errors.popleft()
            self._repeats[oldest.process, oldest.tags] -= 1
            self._repeats += Counter()  # removes what is down to zero


SILENCE_LOGGED_S = 1.0
"""Shorter silences are not logged. On a busy machine many answers take longer than the 0.25 s after
which a hook is shown as silent; they would displace everything else."""


class HookStateLog:
    """Logs the states of hooks."""

    def __init__(self) -> None:
        self._logged: dict[ProcessId, str] = {}
        """The last state of each hook that was logged."""
        self._silences: dict[ProcessId, HookStatus] = {}
        """Silences that are not logged yet."""

    def add(self, status: HookStatus, log: EventLog) -> None:
        """Log a state; a silence is logged later, if it still lasts then."""
        begun = self._silences.pop(status.process, None)
        if status.state == "silent":
            self._silences[status.process] = begun or status
        else:
            self._log_state(status, log)

    def add_silences(self, at_s: float, log: EventLog) -> None:
        """Log the silences that have lasted long enough."""
        for process, status in list(self._silences.items()):
            if at_s - status.at_s >= SILENCE_LOGGED_S:
                del self._silences[process]
                self._log_state(status, log)

    def forget(self, process: ProcessId) -> None:
        """Drop a process that is no longer shown."""
        self._logged.pop(process, None)
        self._silences.pop(process, None)

    def _log_state(self, status: HookStatus, log: EventLog) -> None:
        if self._logged.get(status.process, "absent") == status.state:
            return
        self._logged[status.process] = status.state
        reason = f": {status.reason}" if status.reason else ""
        words = f"hook of {status.process.pid} is {status.state}{reason}"
        log.add(status.at_s, "hook", status.process, words)


_FIELDS = ("what", "where", "type", "text", "message", "method", "child", "path", "reason", "site")
_WORDS: Mapping[str, Mapping[str, str]] = {
    "start": {
        "name": "{}",
        "pid": "process {}",
        "method": "by {}",
        "target": "{}",
    },
    "generators": {"dataset": "of {}", "hashes": "{}"},
    "first-samples": {"dataset": "of {}", "parts": "{}"},
    "foreign-shutdown": {"owner": "of the DataLoader of process {}"},
    "thread-died": {"thread": "{}", "type": "{}", "text": "{}"},
    "lost-item": {"item": "{}", "type": "{}", "text": "{}"},
    "unpicklable": {"path": "{}", "object": "of {}", "type": "{}", "text": "{}"},
    "receive-failed": {"address": "at {}", "type": "{}", "text": "{}"},
    "cuda-init": {"frames": "{}"},
    "cuda-lent": {
        "unreleased": "{} CUDA tensors of it are in use elsewhere, or were not received",
        "bytes": "{} bytes",
    },
    "exit": {"code": "code {}", "how": "by {}"},
    "kill": {"signal": "signal {}", "pid": "to process {}", "site": "at {}"},
    "fork": {
        "threads": "{} threads running",
        "python_threads": "{}",
        "torch_threads": "torch uses {}",
        "libraries": "{}",
    },
    "many-storages": {"storages": "{}", "path": "in {}", "object": "of {}"},
    "dangling-view": {"path": "{}", "dtype": "{}", "shape": "of shape {}"},
    "parameters-not-shared": {
        "what": "{}",
        "model": "of {}",
        "how": "{}",
        "processes": "{} processes",
    },
}
"""Fields of a kind of note and their wording, where `_FIELDS` does not fit."""

CALLS = 6
"""Calls of a stack in one line."""


def note_words(kind: str, data: Mapping[str, object]) -> str:
    """One line about a note: its kind and its most important fields, in a fixed order."""
    worded = _WORDS.get(kind, dict.fromkeys(_FIELDS, "{}"))
    parts = [
        clean(words.format(_shown(data[name])))
        for name, words in worded.items()
        if data.get(name) not in (None, "", [], {})
    ]
    words = kind.replace("-", " ").replace("_", " ")
    return f"{words}: {'; '.join(parts)}" if parts else words


def _shown(value: object) -> str:
    """A value as text; the calls of a stack from the innermost to the outermost."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    if not isinstance(value, list):
        return str(value)
    calls = [each for each in value if isinstance(each, list) and len(each) == 3]
    if value and len(calls) == len(value):
        return " < ".join(f"{name} {_file(path)}:{line}" for name, path, line in calls[:CALLS])
    return ", ".join(map(str, value))


def _file(path: object) -> str:
    return str(path).rpartition("/")[2]


GAPS_KEPT = 64
"""A hook that lost notes leaves gaps in their numbers. Beyond so many, the oldest gap is closed."""
UNNUMBERED_KEPT = 1024
"""Notes without a number that are remembered; the oldest is forgotten first."""


class ReceivedNotes:
    """The notes received from the hook of one process.

    The same note can arrive by the hook's socket, in the file of a killed process,
    and once more from either. Its number identifies it. Notes of hooks and recordings without
    numbers are identified by time, kind and content.
    """

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        """Numbers received, as ranges `[first, after)` in order; nearly always a single one."""
        self._unnumbered: OrderedDict[tuple[int, str, str], None] = OrderedDict()

    def restart(self) -> None:
        """Another hook was loaded into the process: it counts from 0 again."""
        self._ranges.clear()

    def has(self, note: HookNote) -> bool:
        """Whether this note was received."""
        if note.number is None:
            return _content(note) in self._unnumbered
        place = bisect_right(self._ranges, note.number, key=_first)
        return place > 0 and note.number < self._ranges[place - 1][1]

    def add(self, note: HookNote) -> bool:
        """Remember a note, and return whether it is new."""
        if self.has(note):
            return False
        if note.number is None:
            self._unnumbered[_content(note)] = None
            if len(self._unnumbered) > UNNUMBERED_KEPT:
                self._unnumbered.popitem(last=False)
        else:
            self._add_number(note.number)
        return True

    def _add_number(self, number: int) -> None:
        """Extend the range before or after the number, join both, or begin a range."""
        place = bisect_right(self._ranges, number, key=_first)
        first, after = number, number + 1
        if place < len(self._ranges) and self._ranges[place][0] == after:
            after = self._ranges.pop(place)[1]
        if place > 0 and self._ranges[place - 1][1] == first:
            place -= 1
            first = self._ranges.pop(place)[0]
        self._ranges.insert(place, (first, after))
        if len(self._ranges) > GAPS_KEPT:
            (oldest, _), (_, end) = self._ranges[:2]
            self._ranges[:2] = [(oldest, end)]


def _first(numbers: tuple[int, int]) -> int:
    return numbers[0]


def _content(note: HookNote) -> tuple[int, str, str]:
    return note.at_ns, note.kind, repr(note.data)
