"""Files in which the ranks of a job have left what torch's flight recorder held.

torch writes one file for each rank when a collective of NCCL runs into its timeout, or when asked
to: `TORCH_FR_DUMP_TEMP_FILE` (older: `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`) and the number of the rank;
without the variable `~/.cache/torch/comm_lib_trace_rank_N`, in older versions
`/tmp/nccl_trace_rank_N` (torch 2.1 to 2.13). It is a pickle of plain values; programs also write
the same as JSON. Names of the keys: `FlightRecorder.hpp`, versions 2.0 to 2.10 of the format. All
of it is hostile input.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from mpwatch.collect.job.plain_pickle import NotPlain, load_plain
from mpwatch.model.collectives import RankRecord, Recorded, RecordedGroup
from mpwatch.model.samples import Frame
from mpwatch.model.sanitize import clean

FILE_BYTES = 64 << 20
"""A dump of 2000 collectives, the default, has 0.2 to 5 MB."""
FILES = 4096
"""Ranks read of one folder at most."""
STALE_S = 3600.0
"""Ranks of one job write their files within their timeout of each other, 10 to 30 minutes."""
CALLS = 64
"""Unfinished collectives kept of each group of a rank; and as many transfers."""
GROUPS = 512
RANKS = 16384
FRAMES = 64
_TEXT = 64
_RANK = re.compile(r"^(?P<stem>.*?)(?P<rank>\d{1,7})(?P<suffix>\.[A-Za-z]+)?$", re.ASCII)
_TRANSFER = re.compile(r"(?:(?P<send>send) \d+->(?P<to>\d+)|(?P<recv>recv) \d+<-(?P<from>\d+))$")
"""Names of transfers in the recorder: `nccl:send 0->3`, `nccl:recv 0<-3`."""


class NotADump(ValueError):
    """A file holds no dump of a flight recorder; the text is one sentence for the user."""


def is_dump(path: str) -> bool:
    """Whether a file begins like a pickle or JSON.

    Raises:
        OSError: It cannot be read.
    """
    with _opened(path) as file:
        head = file.read(64)
    return head[:1] == b"\x80" or head.lstrip()[:1] == b"{"


def read_dumps(
    paths: Sequence[str], on_part: Callable[[float], None] = lambda _: None
) -> tuple[list[RankRecord], list[str]]:
    """The records of all ranks, by number, and what could not be read, in sentences.

    Of several files of one rank the newest counts, and files that are more than an hour older than
    the newest are left out: they are of an earlier job.

    Args:
        paths: Files, and folders with files of several ranks.
        on_part: Called with the part that is done, 0 to 1.

    Raises:
        OSError: A path that was given cannot be read.
    """
    times = {path: os.stat(path).st_mtime for path in _files(paths)}
    newest_s = max(times.values(), default=0.0)
    fresh = sorted((p for p in times if newest_s - times[p] <= STALE_S), key=lambda p: -times[p])
    found: dict[int, RankRecord] = {}
    problems: list[str] = []
    older: list[str] = []
    for index, path in enumerate(fresh):
        on_part(index / len(fresh))
        try:
            record = read_dump(path)
        except NotADump as error:
            problems.append(str(error))
            continue
        if record.rank in found:
            older.append(path)
        found.setdefault(record.rank, record)
    stale = [path for path in times if path not in set(fresh)]
    if older:
        problems.append(f"{_counted(older)} left out: a newer file of the same rank was read.")
    if stale:
        problems.append(f"{_counted(stale)} left out: more than an hour older than the others.")
    return [found[rank] for rank in sorted(found)], problems


def read_dump(path: str) -> RankRecord:
    """The record of one rank, whose number is the last in the name of the file.

    Raises:
        NotADump: It is not a dump of a flight recorder, or of no known form.
        OSError: It cannot be read.
    """
    name = clean(path)
    match = _RANK.match(os.path.basename(path))
    with _opened(path) as file:
        data = file.read(FILE_BYTES + 1)
        written_s = os.fstat(file.fileno()).st_mtime
    if len(data) > FILE_BYTES:
        raise NotADump(f"{name} has more than {FILE_BYTES >> 20} MB.")
    try:
        document = load_plain(data) if data[:1] == b"\x80" else json.loads(data)
    except (NotPlain, ValueError, RecursionError) as error:
        raise NotADump(
            f"{name} is no dump of torch's flight recorder: {clean(str(error))}."
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("entries", []), list):
        raise NotADump(f"{name} is no dump of torch's flight recorder.")
    if "entries" not in document and "pg_status" not in document:
        raise NotADump(f"{name} is no dump of torch's flight recorder: it has no entries.")
    if match is None:
        raise NotADump(f"{name} does not end with the number of a rank, as torch names such files.")
    record = record_of(document, int(match["rank"]), name, written_s)
    if document.get("entries") and not record.entries:
        version = _text(document.get("version"))
        raise NotADump(f"{name} is a dump of a form that is not known (version {version}).")
    return record


def record_of(
    document: Mapping[Any, object], rank: int, source: str, written_wall_s: float
) -> RankRecord:
    """The record of one rank from a dump that was read; what is of another form is left out."""
    members = _members(document.get("pg_config"))
    groups = {name: _Group(name, *facts) for name, facts in members.items()}
    entries = document.get("entries")
    known = 0
    for entry in entries if isinstance(entries, list) else []:
        names = entry.get("process_group") if isinstance(entry, dict) else None
        if not isinstance(names, list | tuple) or len(names) != 2:
            continue
        name = _text(names[0])
        if name not in groups and len(groups) < GROUPS:
            groups[name] = _Group(name, _text(names[1]), None)
        known += name in groups and groups[name].add(entry)
    return RankRecord(
        rank=rank,
        source=source,
        written_wall_s=written_wall_s,
        groups={name: group.result() for name, group in groups.items()},
        entries=known,
        statuses=_statuses(document.get("pg_status")),
    )


# --- files ---------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A regular file: the named pipe by which torch is asked for a dump may lie beside it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotADump(f"{clean(path)} is not a regular file.")
        yield file


def _files(paths: Sequence[str]) -> Iterator[str]:
    """The files that are given, and those of a folder that look like a dump of a rank."""
    for path in dict.fromkeys(paths):
        if not os.path.isdir(path):
            yield path
            continue
        names = sorted(name for name in os.listdir(path) if _RANK.match(name))
        for inside in (os.path.join(path, name) for name in names[:FILES]):
            try:
                is_one = is_dump(inside)
            except (NotADump, OSError):
                continue  # another file that ends with a number, a pipe, a folder
            if is_one:
                yield inside


def _counted(paths: Sequence[str]) -> str:
    return clean(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


# --- entries -------------------------------------------------------------------------------------


class _Group:
    """What a dump holds of one group; entries are added oldest first."""

    __slots__ = (
        "_called",
        "_description",
        "_finished",
        "_local_id",
        "_name",
        "_ranks",
        "_transfers",
        "_unfinished",
    )

    def __init__(self, name: str, description: str, ranks: tuple[int, ...] | None) -> None:
        self._name = name
        self._description = description
        self._ranks = ranks
        self._called: int | None = None
        self._finished: Mapping[str, object] | None = None
        self._unfinished: list[Mapping[str, object]] = []
        self._transfers: list[Mapping[str, object]] = []
        self._local_id = ""

    def add(self, entry: Mapping[str, object]) -> bool:
        """Take note of an entry; `False` if it is of another form, and left out."""
        number, is_transfer = _integer(entry.get("collective_seq_id")), entry.get("is_p2p") is True
        if number is None or not isinstance(entry.get("profiling_name"), str):
            return False
        self._local_id = _text(entry.get("pg_id"))
        is_unfinished = _is_unfinished(entry)
        if is_transfer:
            if is_unfinished and len(self._transfers) < CALLS:
                self._transfers.append(entry)
            return True
        self._called = max(number, self._called or 0)
        if not is_unfinished:
            self._finished = entry
        elif len(self._unfinished) < CALLS:
            self._unfinished.append(entry)
        return True

    def result(self) -> RecordedGroup:
        """The group as a value."""
        calls = [self._finished] if self._finished is not None else []
        found = [self._call(entry) for entry in (*calls, *self._unfinished)]
        return RecordedGroup(
            name=self._name,
            description=self._description,
            ranks=self._ranks,
            called=self._called,
            calls=tuple(sorted(found, key=lambda call: call.number)),
            transfers=tuple(self._call(entry) for entry in self._transfers),
            local_id=self._local_id,
        )

    def _call(self, entry: Mapping[str, object]) -> Recorded:
        name = _text(entry["profiling_name"])
        operation = name.rpartition(":")[2]
        transfer = _TRANSFER.match(operation) if entry.get("is_p2p") is True else None
        number = entry.get("collective_seq_id")
        if transfer is not None:
            operation = "send" if transfer["send"] else "recv"
            number = entry.get("p2p_seq_id")
        types = entry.get("input_dtypes")
        return Recorded(
            group=self._name,
            description=self._description,
            operation=operation,
            number=_integer(number) or 0,
            sizes=_sizes(entry.get("input_sizes")),
            types=", ".join(map(_text, types[:4])) if isinstance(types, list) else "",
            is_unfinished=_is_unfinished(entry),
            ranks=None if self._ranks is None else frozenset(self._ranks),
            other_place=transfer and int(transfer["to"] or transfer["from"]),
            created_wall_ns=_integer(entry.get("time_created_ns")),
            stack=tuple(_frames(entry.get("frames"))),
        )


def _is_unfinished(entry: Mapping[str, object]) -> bool:
    """Whether a collective had not finished: gloo never says `completed`, it only retires.

    One of NCCL that is retired and not completed has run into its timeout (`FlightRecorder.hpp`).
    """
    if entry.get("state") == "completed":
        return False
    is_of_gloo = str(entry.get("profiling_name"))[:_TEXT].startswith("gloo:")
    return not (is_of_gloo and entry.get("retired") is True)


def _members(config: object) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Description and ranks of the groups, by name; gloo leaves an entry without a name."""
    found: dict[str, tuple[str, tuple[int, ...] | None]] = {}
    for value in list(config.values())[:GROUPS] if isinstance(config, dict) else ():
        if not isinstance(value, dict) or not value.get("name"):
            continue
        text, ranks = value.get("ranks"), None
        if isinstance(text, str) and 2 < len(text) <= RANKS * 8:
            ranks = tuple(map(int, re.findall(r"\d{1,7}", text)))
        found[_text(value["name"])] = _text(value.get("desc")), ranks
    return found


def _statuses(status: object) -> dict[str, int]:
    """The newest call of each group, by the number of the group in the process."""
    found: dict[str, int] = {}
    for key, value in list(status.items())[:GROUPS] if isinstance(status, dict) else ():
        number = value.get("last_enqueued_collective") if isinstance(value, dict) else None
        text = _text(number, 19)
        if text.isascii() and text.isdecimal():
            found[_text(key)] = int(text)
    return found


def _frames(frames: object) -> Iterator[Frame]:
    for frame in frames[:FRAMES] if isinstance(frames, list) else ():
        if isinstance(frame, dict):
            name, file = frame.get("name"), frame.get("filename")
            yield Frame(_text(name), _text(file, 256), _integer(frame.get("line")) or 0)


def _sizes(sizes: object) -> str:
    """The shapes of tensors: `[[4, 3], [2]]`, of many the first."""
    if not isinstance(sizes, list):
        return ""
    shapes = [
        "[" + ", ".join(str(n) for n in shape[:8] if _integer(n) is not None) + "]"
        for shape in sizes[:4]
        if isinstance(shape, list | tuple)
    ]
    more = ", …" if len(sizes) > 4 else ""
    return f"[{', '.join(shapes)}{more}]"[:_TEXT]


def _integer(value: object) -> int | None:
    """A number that is not negative and has at most 63 bits, as all of torch's are."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _text(value: object, limit: int = _TEXT) -> str:
    """A short printable text; empty for other values than texts and integers."""
    if isinstance(value, int):
        return str(value) if _integer(value) is not None else ""
    return clean(value, limit) if isinstance(value, str) else ""
