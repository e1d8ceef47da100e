"""Whose exceptions the tracebacks are that a job has written to files.

A traceback names its process only where multiprocessing or torch have written the name or the rank
beside it. Outside of a process its name is not known, unless a hook has told it. So a traceback is
put down to a process that has failed where nothing else is possible, or nothing else likely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from mpwatch.model.events import Raised, WrittenError, WrittenErrors
from mpwatch.model.ids import ProcessId, Role
from mpwatch.observe.state.process_table import ProcessRecord

KEPT = 64
ALIKE = 4
"""So many equal tracebacks of processes that fail one after the other are those of all of them."""
LATE_S = 0.5
"""The end of a process may be read so long after its traceback."""
ALIKE_LATE_S = 4.0
"""The same where all tracebacks are equal, so that it does not matter which is whose: on a busy
machine a process that has printed one takes seconds to end."""
_MULTIPROCESSING: frozenset[Role] = frozenset(("spawned", "pool-worker", "loader-worker"))
_POOL_THREADS = frozenset(("_handle_results", "_handle_tasks", "_handle_workers"))
_NUMBER = re.compile(r"(\d+)(?!.*\d)")
"""The last number in a name."""

Records = Mapping[ProcessId, ProcessRecord]


class Told(Struct, frozen=True):
    """Whose a traceback is."""

    process: ProcessId
    kind: Literal["exception", "thread-died"]
    error: WrittenError
    is_certain: bool

    @property
    def words(self) -> str:
        """`most likely its traceback in train.log, as loader-3: ValueError: bad shard`."""
        raised, sure = self.error.raised, "" if self.is_certain else "most likely "
        where = self.error.file.rpartition("/")[2]
        text = f"{raised.type}: {raised.text}" if raised.text else raised.type
        if self.kind == "thread-died":
            return f"{sure}its thread {self.error.thread_name}, by its traceback in {where}: {text}"
        name = f", as {self.error.process_name}" if self.error.process_name else ""
        return f"{sure}its traceback in {where}{name}: {text}"

    @property
    def details(self) -> dict[str, object]:
        """The fields of the note that a hook would have made, and how sure it is."""
        error = self.error
        found = {**_fields(error.raised), "log": error.file, "is_certain": self.is_certain}
        if error.process_name:
            found["name"] = error.process_name
        if error.first is not None:
            found["first"] = {**_fields(error.first), "is_from": error.is_from}
        return found


def _fields(raised: Raised) -> dict[str, object]:
    frames = [[frame.function, frame.file, frame.line] for frame in raised.frames]
    return {"type": raised.type, "text": raised.text, "frames": frames}


class WrittenErrorTable:
    """The tracebacks of one job, until it is known whose they are."""

    def __init__(self) -> None:
        self._errors: list[tuple[float, WrittenError]] = []
        """With the time at which each was read."""
        self._known: set[ProcessId] = set()
        """Processes whose exception is known."""

    @property
    def left(self) -> tuple[WrittenError, ...]:
        """The tracebacks of which it is not sure whose they are, in the order of reading.

        That of one which has ended a script may stand below what another process has logged.
        """
        return tuple(e for _, e in self._errors if e.process is None or e.script)

    def add(self, read: WrittenErrors) -> None:
        """Take what was read; beyond a limit the oldest are dropped."""
        for error in read.errors:
            if error.process is not None:  # only the last one that a process has logged counts
                self._drop(each for _, each in self._errors if each.process == error.process)
            if len(self._errors) >= KEPT:
                del self._errors[0]
            self._errors.append((read.at_s, error))

    def know(self, process: ProcessId) -> None:
        """Note that the hook of a process has told its exception."""
        self._known.add(process)

    def forget(self, process: ProcessId) -> None:
        """Drop a process that is no longer shown."""
        self._known.discard(process)

    def settle(
        self, records: Records, description_of: Callable[[ProcessId], object]
    ) -> Iterator[Told]:
        """Whose tracebacks are, as far as that is known now; each once.

        Args:
            records: All processes of the job.
            description_of: What the hook of a process has reported of its start, `None` if nothing.
        """
        if not self._errors:
            return
        names = {
            name: each for each in records if (name := _name(description_of(each))) is not None
        }
        for _, error in list(self._errors):
            told = _of_one(error, records, names)
            if told is not None:
                self._drop((error,))
                if told.process not in self._known or told.kind == "thread-died":
                    self._known.add(told.process)
                    yield told
        for told in self._of_unnamed(records, frozenset(names.values())):
            self._known.add(told.process)
            yield told

    def _of_unnamed(self, records: Records, named: frozenset[ProcessId]) -> list[Told]:
        """Tracebacks of multiprocessing's children put down to those that have failed."""
        failed = [
            record
            for process, record in records.items()
            if record.sample.role in _MULTIPROCESSING
            and record.ended is not None
            and record.ended.exit_code == 1
            and process not in self._known | named
        ]
        written = [each for each in self._errors if each[1].process_name and each[1].is_of_job]
        errors = [error for _, error in written]
        if not failed or not errors:
            return []
        is_alike = len({_kind(error) for error in errors}) == 1
        if is_alike and len(errors) >= ALIKE:
            self._drop(errors[:-ALIKE])
            return [_likely(record, errors[-1]) for record in failed]
        failed.sort(key=lambda record: record.sample.process.start_ticks)
        ends = [record.ended.at_s for record in failed if record.ended is not None]
        late_s = ALIKE_LATE_S if is_alike else LATE_S
        if min(at_s for at_s, _ in written) < max(ends) - late_s:
            return []  # one of these has ended after a traceback was there
        if is_alike and len(errors) >= len(failed):
            pairs = list(zip(failed, errors, strict=False))
        elif len(errors) == len(failed) and (ordered := _by_number(errors)):
            pairs = list(zip(failed, ordered, strict=True))
        else:
            return []
        self._drop([error for _, error in pairs])
        return [_likely(record, error) for record, error in pairs]

    def _drop(self, errors: Iterable[WrittenError]) -> None:
        gone = {id(error) for error in errors}
        self._errors = [each for each in self._errors if id(each[1]) not in gone]


def _of_one(error: WrittenError, records: Records, names: Mapping[str, ProcessId]) -> Told | None:
    """The process of a traceback, by its text, or by the processes that write to its file."""
    if error.thread_name:
        return _of_thread(error, records)
    if error.process is not None and not error.process_name:
        record = records.get(error.process)
        is_it = record is not None and record.ended is not None and bool(record.ended.exit_code)
        return _likely(record, error) if record is not None and is_it else None
    if error.process_name in names:
        return _certain(records[names[error.process_name]], error)
    failed = [
        record
        for record in records.values()
        if record.ended is not None and record.ended.exit_code not in (0, None)
    ]
    if error.rank is not None:
        found = [record for record in failed if record.sample.rank == error.rank]
    else:
        found = [record for record in failed if error.writers == (record.sample.process,)]
    return _certain(found[0], error) if len(found) == 1 and error.is_of_job else None


def _of_thread(error: WrittenError, records: Records) -> Told | None:
    """The living process whose thread has ended by it, where only one has written to the file."""
    living = [
        records[each]
        for each in error.writers
        if each in records and records[each].ended is None and records[each].sample.is_python
    ]
    if any(f.function in _POOL_THREADS and f.file.endswith("pool.py") for f in error.raised.frames):
        heads = {
            record.original_parent
            for record in records.values()
            if record.sample.role in _MULTIPROCESSING
        }
        living = [record for record in living if record.sample.process in heads]
    if len(living) != 1 or not error.is_of_job:
        return None
    return Told(living[0].sample.process, "thread-died", error, True)


def _certain(record: ProcessRecord, error: WrittenError) -> Told | None:
    if record.ended is None:
        return None
    return Told(record.sample.process, "exception", error, error.is_of_job)


def _likely(record: ProcessRecord, error: WrittenError) -> Told:
    return Told(record.sample.process, "exception", error, False)


def _kind(error: WrittenError) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Equal for the same failure at the same place."""
    return error.raised.type, tuple((f.file, f.line) for f in error.raised.frames[:1])


def _by_number(errors: Sequence[WrittenError]) -> list[WrittenError]:
    """The tracebacks by the numbers in the names of their processes; empty if that is no order.

    Numbers grow in the order of starts: multiprocessing counts, and so do programs.
    """
    found = [_NUMBER.search(error.process_name) for error in errors]
    stems = {_NUMBER.sub("", error.process_name) for error in errors}
    numbers = [int(each[1][:9]) for each in found if each is not None]
    if len(stems) != 1 or len(set(numbers)) != len(errors):
        return []
    return [error for _, error in sorted(zip(numbers, errors, strict=True), key=lambda e: e[0])]


def _name(description: object) -> str | None:
    """The name of a child of multiprocessing, as its parent's hook has told it."""
    name = description.get("name") if isinstance(description, Mapping) else None
    return name if isinstance(name, str) else None
