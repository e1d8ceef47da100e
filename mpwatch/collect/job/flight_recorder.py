"""What torch's flight recorder holds of ranks: read from files, and asked of worker servers.

All of it is hostile input.

**Files.** torch writes one file for each rank when a collective of NCCL runs into its timeout, or
when asked to: `TORCH_FR_DUMP_TEMP_FILE` (older: `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`) and the number
of the rank; without the variable `~/.cache/torch/comm_lib_trace_rank_N`, in older versions
`/tmp/nccl_trace_rank_N` (torch 2.1 to 2.13). It is a pickle of plain values; programs also write
the same as JSON. Names of the keys: `FlightRecorder.hpp`, versions 2.0 to 2.10 of the format.

A pickle is a program. `pickle.load` lets it call any function, and even an unpickler that refuses
all classes allocates what a length or an index in the file says (CPython gh-115952). The reader
here knows the opcodes of plain values and refuses all others, so it imports and calls nothing, and
uses memory in proportion to the size of the file. Opcodes: `pickletools` of CPython 3.10 to 3.14,
protocols 2 to 5; torch's own pickler writes protocol 2 (torch 2.1 to 2.13, `pickler.cpp`).

**Servers.** A program that uses `worker_main` of `torch.distributed.elastic.control_plane`, or
makes a `_WorkerServer` itself, has an HTTP server in threads of C++ that answers while another
thread holds the GIL (torch 2.13: `WorkerServer.cpp`, threads `pt_workerserver`). Its handler
`fr_trace_json` returns the recorder of gloo; that of NCCL is another one and is not asked, as it
asks CUDA for the state of events and may so wait for a kernel that does not end. Only a server that
listens on a Unix socket is asked: there the kernel says which process it is, before anything is
sent.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

from mpwatch.model.collectives import RANKS_LIMIT, RankRecord, Recorded, RecordedGroup
from mpwatch.model.ids import ProcessId
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
        if isinstance(text, str) and 2 < len(text) <= RANKS_LIMIT * 8:
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


Plain: TypeAlias = (
    "bool | int | float | str | list[Plain] | tuple[Plain, ...] | dict[str | int, Plain] | None"
)

STACK_LIMIT = 1 << 20
"""Values waiting to be put into a list or a dictionary: torch puts in all of a list at once."""
CONTAINERS_LIMIT = 4 << 20
"""Lists, dictionaries and tuples in all, and references kept: each takes one byte of the file and a
hundred of memory. A dump of 2000 collectives with their stacks has 60,000."""
INTEGER_BYTES = 16
"""A longer integer is none of torch's, and its text could be longer than Python allows."""

_CONSTANTS: dict[int, Plain] = {ord("N"): None, 0x88: True, 0x89: False}
_NUMBERS = {
    ord("K"): struct.Struct("<B"),
    ord("M"): struct.Struct("<H"),
    ord("J"): struct.Struct("<i"),
}
_DOUBLE = struct.Struct(">d")
_TEXTS = {
    0x8C: struct.Struct("<B"),
    ord("X"): struct.Struct("<I"),
    0x8D: struct.Struct("<Q"),
}
_PUTS = {ord("q"): struct.Struct("<B"), ord("r"): struct.Struct("<I")}
_GETS = {ord("h"): struct.Struct("<B"), ord("j"): struct.Struct("<I")}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_PROTOCOL, _FRAME, _STOP, _OPENS = 0x80, 0x95, ord("."), ord("(")
_MEMOIZE, _LONG1, _FLOAT = 0x94, 0x8A, ord("G")
_APPEND, _APPENDS, _SETITEM, _SETITEMS = ord("a"), ord("e"), ord("s"), ord("u")
_EMPTY_LIST, _EMPTY_DICT, _EMPTY_TUPLE, _TUPLE = ord("]"), ord("}"), ord(")"), ord("t")


class NotPlain(ValueError):
    """The data is no pickle, is cut short, or holds something other than plain values."""


def load_plain(data: bytes) -> Plain:
    """The value of a pickle of plain values.

    Values of the result may be shared and may contain themselves: a caller follows them only to a
    fixed depth.

    Raises:
        NotPlain: It is not such a pickle.
    """
    try:
        return _Reader(data).read()
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise NotPlain(f"it is cut short or damaged ({type(error).__name__})") from None


class _Reader:
    """The state of one pickle that is being read."""

    __slots__ = ("_at", "_built", "_data", "_marks", "_memo", "_stack")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._built = 0
        self._stack: list[Plain] = []
        self._marks: list[int] = []
        """Lengths that the stack had at the marks that are not taken back yet."""
        self._memo: dict[int, Plain] = {}

    def read(self) -> Plain:
        """The value on top of the stack at the end of the pickle."""
        data, stack, memo = self._data, self._stack, self._memo
        if data[:1] != b"\x80":
            raise NotPlain("it is not a pickle of protocol 2 to 5")
        while True:
            code = data[self._at]
            self._at += 1
            if code in _GETS:
                stack.append(memo[self._number(_GETS[code])])
            elif code in _PUTS:
                memo[self._number(_PUTS[code])] = stack[-1]
            elif code in _TEXTS:
                stack.append(self._text(self._number(_TEXTS[code])))
            elif code in _NUMBERS:
                stack.append(self._number(_NUMBERS[code]))
            elif code == _FLOAT:
                stack.append(_DOUBLE.unpack_from(data, self._at)[0])
                self._at += _DOUBLE.size
            elif code in _CONSTANTS:
                stack.append(_CONSTANTS[code])
            elif code == _MEMOIZE:
                memo[len(memo)] = stack[-1]
            elif code == _STOP:
                return stack[-1]
            else:
                self._build(code)
            if len(stack) > STACK_LIMIT or len(memo) > CONTAINERS_LIMIT:
                raise NotPlain("it holds more values than a dump of collectives")

    def _build(self, code: int) -> None:
        """The opcodes of containers, and the rare ones."""
        stack = self._stack
        self._built += 1
        if self._built > CONTAINERS_LIMIT:
            raise NotPlain("it holds more values than a dump of collectives")
        if code == _OPENS:
            self._marks.append(len(stack))
        elif code == _EMPTY_LIST:
            stack.append([])
        elif code == _EMPTY_DICT:
            stack.append({})
        elif code == _EMPTY_TUPLE:
            stack.append(())
        elif code in _TUPLES:
            stack.append(tuple(self._taken(len(stack) - _TUPLES[code])))
        elif code == _TUPLE:
            stack.append(tuple(self._taken(self._marks.pop())))
        elif code in (_APPEND, _APPENDS):
            self._extend(self._taken(len(stack) - 1 if code == _APPEND else self._marks.pop()))
        elif code in (_SETITEM, _SETITEMS):
            self._update(self._taken(len(stack) - 2 if code == _SETITEM else self._marks.pop()))
        elif code == _LONG1:
            self._integer()
        elif code == _PROTOCOL:
            self._at += 1
        elif code == _FRAME:
            self._at += 8
        else:
            raise NotPlain(f"it holds something other than plain values (opcode {code:#x})")

    def _number(self, form: struct.Struct) -> int:
        number: int = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return number

    def _text(self, size: int) -> str:
        raw = self._data[self._at : self._at + size]
        if len(raw) < size:
            raise NotPlain("it is cut short")
        self._at += size
        return raw.decode("utf-8", "surrogatepass")

    def _integer(self) -> None:
        size = self._data[self._at]
        if size > INTEGER_BYTES:
            raise NotPlain(f"it holds an integer of {size} bytes")
        raw = self._data[self._at + 1 : self._at + 1 + size]
        self._at += 1 + size
        self._stack.append(int.from_bytes(raw, "little", signed=True))

    def _taken(self, start: int) -> list[Plain]:
        """The values from a place of the stack on, which leave it."""
        if start < (self._marks[-1] if self._marks else 0):
            raise NotPlain("it takes values that are not there")
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _extend(self, values: list[Plain]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise NotPlain("it appends to something other than a list")
        target.extend(values)

    def _update(self, values: list[Plain]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise NotPlain("it sets items of something other than a dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Of nested tuples as keys, the hash would be computed by a recursion without a limit.
            if not isinstance(key, str | int):
                raise NotPlain("it has a dictionary with keys other than texts and integers")
            target[key] = value


# --- worker servers -------------------------------------------------------------------------------

SERVER_THREAD = "pt_workerserver"
"""Name of the threads of a process with such a server."""
SERVER_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
DEADLINE_S = 2.0
"""For a whole answer; one with 2000 collectives was made in 50 ms."""
ANSWER_BYTES = 8 << 20
"""Longest answer of a process of the job, also of NCCL RAS: its JSON takes about 600 bytes for each
rank of each communicator, its text much less."""
_HEAD_BYTES = 64 << 10
_REQUEST = (
    b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_LISTENS = "unix listens on "
_OTHER_SERVERS = ("pymp-", "mpwatch", "listener-")
"""In paths of sockets of multiprocessing and of the hook, which do not speak HTTP."""


class NoAnswer(OSError):
    """The server cannot be reached, or answers something else."""


def socket_of(environment: Mapping[str, str], addresses: Iterable[str]) -> str | None:
    """The path of the Unix socket of a process with a worker server; `None` if it is not known.

    Args:
        environment: Of the process, as it was started.
        addresses: What is known of its sockets: `unix listens on /tmp/a`.
    """
    named = environment.get(SERVER_VARIABLE, "")
    if named.startswith("/"):
        return named
    paths = {
        address.removeprefix(_LISTENS)
        for address in addresses
        if address.startswith(_LISTENS + "/")
        and not any(part in address for part in _OTHER_SERVERS)
    }
    return paths.pop() if len(paths) == 1 else None


def ask(process: ProcessId, path: str, rank: int = 0, proc: str = "/proc") -> RankRecord:
    """What the flight recorder of a process holds.

    Args:
        process: The process; a server of another one that listens there is not asked.
        path: Of its socket, as the process sees it.
        rank: The number of the rank, for the result.
        proc: Where procfs is mounted.

    Raises:
        NoAnswer: It does not answer in time, or not in the form that is known.
    """
    try:
        document = json.loads(_body(_answer(process, path, proc)))
    except (OSError, ValueError, RecursionError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from None
    if not isinstance(document, dict):
        raise NoAnswer("it is no object")
    return record_of(document, rank, path, time.time())


def gauge_of(record: RankRecord) -> dict[str, Any]:
    """The record as the gauge `collectives` of a hook: see `hook.wire`."""
    groups = {
        group.name: {"size": len(group.ranks), "ranks": ", ".join(map(str, group.ranks))}
        for group in record.groups.values()
        if group.ranks is not None
    }
    calls = (group.unfinished or group.newest for group in record.groups.values())
    return {"groups": groups, "states": [_state(call) for call in calls if call is not None]}


def _state(call: Recorded) -> dict[str, Any]:
    return {
        "group": call.group,
        "description": call.description,
        "operation": call.operation,
        "number": call.number,
        "sizes": call.sizes,
        "types": call.types,
        "is_unfinished": call.is_unfinished,
        "created_wall_ns": call.created_wall_ns,
    }


def _answer(process: ProcessId, path: str, proc: str) -> bytes:
    """All that the server sends, within the limits of bytes and time."""
    end_s = time.monotonic() + DEADLINE_S
    root = f"{proc}/{process.pid}/root"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(DEADLINE_S)
        # The process may see other files than this one; the path of a socket has 107 bytes.
        is_same = os.path.samefile(root, "/") if os.path.exists(root) else True
        connection.connect(path if is_same else f"{root}{path}")
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", raw)[0] != process.pid:
            raise NoAnswer("another process listens there")
        connection.sendall(_REQUEST)
        answer = bytearray()
        while len(answer) < ANSWER_BYTES:
            connection.settimeout(max(0.001, end_s - time.monotonic()))
            part = connection.recv(1 << 16)
            if not part:
                return bytes(answer)
            answer += part
            if _is_whole(answer):
                return bytes(answer)
    raise NoAnswer(f"its answer is longer than {ANSWER_BYTES >> 20} MB")


def _is_whole(answer: bytearray) -> bool:
    """Whether the answer has as many bytes as its head says."""
    head, end, _ = answer[:_HEAD_BYTES].partition(b"\r\n\r\n")
    size = _size(bytes(head)) if end else None
    return size is not None and len(answer) >= len(head) + len(end) + size


def _size(head: bytes) -> int | None:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return int(value.strip()[:12])
    return None


def _body(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"200":
        raise NoAnswer("its answer is no success of HTTP/1")
    return body
