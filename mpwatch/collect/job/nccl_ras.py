"""Asks NCCL RAS what it knows of a job: which ranks do not respond, and which are behind.

Since NCCL 2.24 a thread of each process with a communicator listens on `localhost:28028`, or where
`NCCL_RAS_ADDR` says, and answers in text lines (`src/ras/client_support.cc` of 2.24.3 to 2.30.7,
`docs/userguide/source/troubleshooting/ras.rst`): `CLIENT PROTOCOL 2`, `TIMEOUT seconds`,
`SET FORMAT json` since 2.28.7, `VERBOSE STATUS`. It gathers the answer from the processes of all
machines, without CUDA calls that wait and without the GIL, and closes the connection. Nothing in
the job is changed. It counts collectives that were launched, not those that have ended.

All processes of a machine listen on the same port (SO_REUSEPORT), and the kernel picks one of them:
so nothing is sent unless each of them belongs to the job. One that is stopped never answers;
another connection may reach another one, as NCCL's own client does it (`src/ras/client.cc`).

The answer to `VERBOSE STATUS` is JSON since NCCL 2.28.7, before that text. Both forms are from the
sources of 2.24.3, 2.26.2, 2.28.7 and 2.30.7: the text from the formats of `rasOutAppend` in
`rasClientRunInit` and `rasClientRunComms`, the JSON from the functions `jsonWrite*`, and from the
examples in `troubleshooting/ras.rst`. The text of 2.24 and 2.25 counts collectives of all kinds
together, and names missing ranks without their processes. All of it is hostile input: what is of
another form is left out.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from mpwatch.collect.job.flight_recorder import ANSWER_BYTES, NoAnswer
from mpwatch.collect.process import procfs
from mpwatch.model.collectives import (
    RANKS_LIMIT,
    NcclAnswer,
    NcclCommunicator,
    NcclPart,
    NcclProcess,
    NcclRemark,
    NcclRemarkKind,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

VARIABLE = "NCCL_RAS_ADDR"
PORT = 28028
GREETING_S = 1.0
"""Until the first line, which takes no gathering; NCCL's client waits as long."""
ATTEMPTS = 4
GATHER_S = 3
"""How long RAS waits for a process that does not respond; 5 s if nothing is said."""
DEADLINE_S = 12.0
"""For the whole answer. RAS gives up 5 s after its own limit."""
_LINE_BYTES = 1024
"""A line that is longer is none of RAS's."""
_FDS = 1 << 16
_ADDRESS = re.compile(r"(?:.*:)?(\d{1,5})", re.S)


class Listener(NamedTuple):
    """Where RAS of a job listens on this machine."""

    family: socket.AddressFamily
    host: str
    port: int


def port_of(environment: Mapping[str, str]) -> int | None:
    """The port on which RAS of a process listens; `None` if the variable names none."""
    named = environment.get(VARIABLE)
    if named is None:
        return PORT
    match = _ADDRESS.fullmatch(named)
    return int(match[1]) if match is not None and 0 < int(match[1]) < 1 << 16 else None


def find_listener(
    processes: Sequence[ProcessId], port: int, proc: str = "/proc"
) -> Listener | None:
    """Where RAS listens; `None` if nothing does, or if any listener is of another process.

    Args:
        processes: Those of the job that may listen there.
        port: The port.
        proc: Where procfs is mounted.

    Raises:
        OSError: The first of the processes has ended, or is hidden from this one.
    """
    first = f"{proc}/{processes[0].pid}"
    if not os.path.samefile(f"{first}/ns/net", f"{proc}/self/ns/net"):
        return None  # its localhost is another one
    found = list(_listeners(first, port))
    inodes = {inode for inode, _ in found}
    if not found or not inodes <= set(_sockets(processes, proc)):
        return None
    return found[0][1]


def ask(listener: Listener) -> NcclAnswer:
    """What RAS says; returns within `DEADLINE_S` and a second for each of `ATTEMPTS`.

    Raises:
        NoAnswer: It does not answer in time, or not in a form that is known.
    """
    for _ in range(ATTEMPTS):
        try:
            with socket.socket(listener.family, socket.SOCK_STREAM) as connection:
                ras = _Connection(connection)
                connection.settimeout(GREETING_S)
                connection.connect((listener.host, listener.port))
                if ras.is_greeted():
                    return parse(ras.answer())
        except (OSError, NotAnAnswer) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from None
    raise NoAnswer(f"none of {ATTEMPTS} connections was answered")


class _Connection:
    """One connection to RAS."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end_s = time.monotonic() + DEADLINE_S
        self._received = bytearray()

    def is_greeted(self) -> bool:
        """Whether RAS answers the greeting; not if the process is stopped.

        Raises:
            NotAnAnswer: What listens there is not RAS.
            OSError: The connection was closed or refused.
        """
        limit_s = time.monotonic() + GREETING_S
        try:
            line = self._reply(b"CLIENT PROTOCOL 2", limit_s)
        except TimeoutError:
            return False
        if not line.startswith(b"SERVER PROTOCOL "):
            raise NotAnAnswer("it does not greet as NCCL RAS does")
        return True

    def answer(self) -> bytes:
        """All that RAS sends, as JSON if it knows that.

        Raises:
            NotAnAnswer: It is longer than any known.
            OSError: It did not end in time.
        """
        self._reply(b"TIMEOUT %d" % GATHER_S, self._end_s)
        self._reply(b"SET FORMAT json", self._end_s)  # an error before 2.28.7: text then
        self._connection.sendall(b"VERBOSE STATUS\n")
        while self._receive(self._end_s):
            if len(self._received) > ANSWER_BYTES:
                raise NotAnAnswer(f"it is longer than {ANSWER_BYTES >> 20} MB")
        return bytes(self._received)

    def _reply(self, command: bytes, end_s: float) -> bytes:
        """The line that answers a command."""
        self._connection.sendall(command + b"\n")
        while b"\n" not in self._received:
            if len(self._received) > _LINE_BYTES:
                raise NotAnAnswer("a line is longer than any of NCCL RAS")
            if not self._receive(end_s):
                raise NotAnAnswer("it closed the connection")
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return line

    def _receive(self, end_s: float) -> bool:
        """Receive more; `False` at the end."""
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_s)
        part = self._connection.recv(1 << 16)
        self._received += part
        return bool(part)


# --- which sockets -------------------------------------------------------------------------------


def _listeners(process: str, port: int) -> Iterator[tuple[bytes, Listener]]:
    """The sockets that listen on a port: inode and where."""
    for each in procfs.tcp_listeners(process):
        if each.port == port:
            family = socket.AF_INET if each.table == "tcp" else socket.AF_INET6
            yield each.inode, Listener(family, _host(each.address, family), port)


def _host(address: bytes, family: socket.AddressFamily) -> str:
    """An address of this machine at which a listener is reached."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    host = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _sockets(processes: Sequence[ProcessId], proc: str) -> Iterator[bytes]:
    """The inodes of sockets of which some processes have descriptors."""
    left = _FDS
    for process in processes:
        folder = os.fsencode(f"{proc}/{process.pid}/fd")
        try:
            names = os.listdir(folder)[:left]
        except OSError:
            continue  # it has ended; a listener of another user's process belongs to no one
        left -= len(names)
        for name in names:
            try:
                link = os.readlink(folder + b"/" + name)
            except OSError:
                continue  # closed since
            if link.startswith(b"socket:["):
                yield link[8:-1]


COMMUNICATORS = 64
"""Kept of those with something to tell."""
REMARKS = 64
"""Kept of one communicator; and as many processes of an answer."""
PARTS = 64
_TEXT = 64
_LIMIT = 1 << 63
ERRORS: Mapping[int, str] = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}
"""Texts of `ncclResult_t` as `ncclErrorToString` has them."""
_IN_PROGRESS = 7
RUNNING = "RUNNING"
STATUS = "status"


class NotAnAnswer(ValueError):
    """It is not the answer of NCCL RAS to a question for its status."""


def parse(data: bytes) -> NcclAnswer:
    """The answer, of either form.

    Raises:
        NotAnAnswer: It is of another form, or was cut.
    """
    if data.lstrip()[:1] == b"{":
        return _of_json(data)
    return _of_text(data.decode("utf-8", "replace"))


# --- JSON ----------------------------------------------------------------------------------------

_COMMA = re.compile(rb'("nvml_dev": -?\d{1,9})(\s{1,64}"status")')
"""Where `jsonWriteMissingRank` of 2.28.7 and 2.28.9 leaves out a comma."""


def _of_json(data: bytes) -> NcclAnswer:
    try:
        document = json.loads(_COMMA.sub(rb"\1,\2", data))
    except (ValueError, RecursionError) as error:
        raise NotAnAnswer(f"{type(error).__name__}: {error}") from None
    communicators = document.get("communicators")
    if not isinstance(communicators, list) or not isinstance(document.get("nccl_version"), str):
        raise NotAnAnswer("the object is another one")
    found = [_communicator(each) for each in communicators if isinstance(each, dict)]
    return NcclAnswer(
        version=clean(document["nccl_version"], _TEXT),
        total=len(communicators),
        communicators=tuple(filter(_is_odd, found))[:COMMUNICATORS],
    )


def _communicator(value: Mapping[str, Any]) -> NcclCommunicator:
    ranks = [each for each in _list(value.get("ranks")) if _number(each.get("rank")) is not None]
    remarks = [remark for each in ranks for remark in _errors(each)]
    remarks += [
        NcclRemark(number, _kind(_map(each.get("status"))), *_process(each))
        for each in _list(value.get("missing_ranks"))
        if (number := _number(each.get("rank"))) is not None
    ]
    return NcclCommunicator(
        name=_text(value.get("hash")),
        size=_number(value.get("size")),
        missing=_number(value.get("missing_ranks_count")) or 0,
        remarks=tuple(remarks[:REMARKS]),
        parts=tuple(_parts_of_json(ranks)),
    )


def _parts_of_json(ranks: Sequence[Mapping[str, Any]]) -> Iterator[NcclPart]:
    """Where the ranks differ, and their status where it is not that of a running communicator."""
    by_status: defaultdict[str, list[int]] = defaultdict(list)
    by_count: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for each in ranks:
        by_status[_status(_map(each.get("status")))].append(each["rank"])
        for operation, count in _map(each.get("collective_counts")).items():
            if (number := _number(count)) is not None:
                by_count[_text(operation)][str(number)].append(each["rank"])
    for what, values in {STATUS: by_status, **by_count}.items():
        if len(values) > 1 or (what == STATUS and RUNNING not in values):
            parts = sorted(values.items(), key=lambda item: -len(item[1]))
            for value, numbers in parts[:PARTS]:
                yield NcclPart(what, value, len(numbers), tuple(sorted(numbers))[:RANKS_LIMIT])


def _status(status: Mapping[str, Any]) -> str:
    """As `rasClientRunComms` derives it from the same flags."""
    if status.get("abort_flag") is True:
        return "ABORT"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "FINALIZE"
    return "INIT" if status.get("init_state") else RUNNING


def _errors(rank: Mapping[str, Any]) -> Iterator[NcclRemark]:
    """What a rank says of its initialization and of its own asynchronous errors."""
    status = _map(rank.get("status"))
    for name in ("init_state", "async_error"):
        code = _number(status.get(name))
        if code is not None and code not in (0, _IN_PROGRESS):
            text = ERRORS.get(code, f"error {code}")
            yield NcclRemark(rank["rank"], "error", *_process(rank), error=text)


def _kind(status: Mapping[str, Any]) -> NcclRemarkKind:
    if status.get("considered_dead") is True:
        return "dead"
    return "unresponsive" if status.get("unresponsive") is True else "not-in-it"


def _process(rank: Mapping[str, Any]) -> tuple[int | None, str]:
    """The process of a rank and the address of its machine; -1 and `unknown` if not known."""
    host = _text(rank.get("host"))
    return _number(rank.get("pid")), "" if host == "unknown" else host


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _LIMIT else None


def _text(value: object) -> str:
    return clean(value, _TEXT) if isinstance(value, str) else ""


def _is_odd(communicator: NcclCommunicator) -> bool:
    """Whether there is anything to tell of it."""
    return bool(communicator.missing or communicator.remarks or communicator.parts)


# --- text ----------------------------------------------------------------------------------------

_VERSION = re.compile(r"NCCL version (\S+)")
_ROW = re.compile(r" *(\d{1,9}) +(\d{1,9}) +\d+ +[\d-]+ +(\d{1,9}) +\d+ +([A-Z]+) +([A-Z,]+) *")
_HEAD = re.compile(r"#(\d{1,9})-(\d{1,9}) \(([0-9a-f]{1,16})\) (?:INCOMPLETE|ERROR|MISMATCH)")
_WHERE = (
    r"-- (?:GPU [^ ]{1,200}(?: \(NVML [\d,]+\))? managed by process (?P<pid>\d{1,10})"
    r" on node (?P<host>\S+)|\[process information not found\])"
)
_SAID = (
    r"launched up to operation (?P<count>\d{1,19})|(?P<none>not launched any operations)"
    r"|status (?P<status>[A-Z]+)"
)
_RANK = re.compile(rf"  Rank (?P<rank>\d{{1,9}}) {_WHERE}")
_ONE = re.compile(
    rf"  Rank (?P<rank>\d{{1,9}}) (?:has (?:{_SAID})|reported (?P<error>[A-Za-z ]+?)) {_WHERE}"
)
_SEVERAL = re.compile(
    rf"  (?P<total>\d{{1,9}}) ranks (?:have (?:{_SAID})|reported (?P<error>[A-Za-z ]+))"
)
_DIFFER = re.compile(r"  Communicator ranks have different (?:(\w+) operation counts|status)")
_MISSING = re.compile(r"  Missing communicator data from (\d{1,9}) ranks?")
_NAMED = re.compile(r"  The missing ranks?: ([\d,]+)")
_LOST = re.compile(
    r"  Process (?P<pid>\d{1,10}) on node (?P<host>\S+) managing GPUs? (?P<gpus>[\d,]+).*"
)
_LINE = 4096
"""Longer lines are left out: the buffer for one has 1024 bytes."""
_SIZES = 1024
"""Rows of the table of communicators."""


def _of_text(text: str) -> NcclAnswer:
    """The answer as text, which ends with a list of warnings, maybe an empty one.

    Raises:
        NotAnAnswer: It is of another form, or was cut.
    """
    version = _VERSION.match(text)
    if version is None:
        raise NotAnAnswer("it does not begin with a version")
    if "\nWarnings\n" not in text:
        raise NotAnAnswer("it is not complete")
    reader = _TextReader()
    for line in text.splitlines():
        if len(line) <= _LINE:
            reader.add(line)
    return NcclAnswer(
        version=clean(version[1], _TEXT),
        total=reader.total,
        communicators=tuple(filter(_is_odd, reader.communicators())),
        processes=tuple(reader.processes[:REMARKS]),
    )


class _Part(Struct):
    """Ranks that are equal in one respect, as far as it was read."""

    what: str
    value: str
    count: int
    ranks: list[int] = field(default_factory=list)


class _Communicator(Struct):
    """A communicator, as far as it was read."""

    name: str
    size: int | None
    missing: int = 0
    remarks: list[NcclRemark] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)

    def result(self) -> NcclCommunicator:
        """It as a value; ranks that were not listed are all others, if only one part has none."""
        for what in {part.what for part in self.parts}:
            parts = [part for part in self.parts if part.what == what]
            unlisted = [part for part in parts if len(part.ranks) != part.count]
            listed = {rank for part in parts for rank in part.ranks}
            listed |= {each.rank for each in self.remarks if each.kind != "error"}
            others = set(range(min(self.size or 0, RANKS_LIMIT))) - listed
            if len(unlisted) == 1 and len(others) == unlisted[0].count:
                unlisted[0].ranks = sorted(others)
        return NcclCommunicator(
            name=self.name,
            size=self.size,
            missing=self.missing,
            remarks=tuple(self.remarks[:REMARKS]),
            parts=tuple(
                NcclPart(each.what, each.value, each.count, tuple(each.ranks))
                for each in self.parts[:PARTS]
                if each.count
            ),
        )


class _TextReader:
    """Takes the lines of an answer; what a line says depends on the headings before it."""

    def __init__(self) -> None:
        self.total = 0
        self.processes: list[NcclProcess] = []
        self._sizes: dict[str, int] = {}
        self._found: dict[tuple[str, ...], _Communicator] = {}
        self._current: _Communicator | None = None
        self._is_dead = False
        self._what = ""
        self._listing: _Part | str | None = None
        """What lines that only name a rank belong to: a part, an error, or the missing ranks if
        empty."""

    def communicators(self) -> Iterator[NcclCommunicator]:
        """Those that were found, as values."""
        return (each.result() for each in self._found.values())

    def add(self, line: str) -> None:
        """Take one line."""
        if line[:2] != "  ":
            self._add_heading(line)
        elif match := _LOST.fullmatch(line):
            self.processes.append(
                NcclProcess(
                    int(match["pid"]),
                    clean(match["host"], _TEXT),
                    clean(match["gpus"], _TEXT),
                    self._is_dead,
                )
            )
        elif self._current is not None:
            self._add_to(self._current, line)
        self._add_row(line)

    def _add_row(self, line: str) -> None:
        """A row of the table: how many communicators there are of a size."""
        row = _ROW.fullmatch(line)
        if row is not None and len(self._sizes) < _SIZES:
            self._sizes.setdefault(row[1], int(row[3]))
            self.total += int(row[2])

    def _add_heading(self, line: str) -> None:
        if not line:
            return
        self._is_dead = line == "DEAD"
        self._current = None
        head = _HEAD.fullmatch(line)
        if head is not None and (head.groups() in self._found or len(self._found) < COMMUNICATORS):
            new = _Communicator(f"0x{head[3].lstrip('0') or '0'}", self._sizes.get(head[1]))
            self._current = self._found.setdefault(head.groups(), new)
            self._what, self._listing = STATUS, None

    def _add_to(self, found: _Communicator, line: str) -> None:
        """A line about a communicator."""
        if match := _MISSING.fullmatch(line):
            found.missing, self._listing = int(match[1]), ""
        elif match := _NAMED.fullmatch(line):
            numbers = [int(number) for number in match[1].split(",") if 0 < len(number) < 10]
            # The list is cut where it does not fit, and then maybe within a number.
            if len(numbers) == found.missing:
                found.remarks += [NcclRemark(n, "no-data") for n in numbers[:REMARKS]]
        elif match := _DIFFER.fullmatch(line):
            kind = match[1]
            self._what = STATUS if kind is None else "" if kind == "collective" else clean(kind)
        elif match := _SEVERAL.fullmatch(line):
            if match["error"]:
                self._listing = match["error"]
            else:
                self._listing = _Part(self._what, _value(match), int(match["total"]))
                found.parts.append(self._listing)
        elif match := _ONE.fullmatch(line):
            self._add_one(found, match)
        elif match := _RANK.fullmatch(line):
            self._add_rank(found, match)

    def _add_one(self, found: _Communicator, match: re.Match[str]) -> None:
        """A line about one rank that is unlike all others."""
        if match["error"]:
            found.remarks.append(_remark(match, "error", clean(match["error"], _TEXT)))
        else:
            found.parts.append(_Part(self._what, _value(match), 1, [int(match["rank"])]))

    def _add_rank(self, found: _Communicator, match: re.Match[str]) -> None:
        """A line about one rank of those that the line before is about."""
        if isinstance(self._listing, _Part):
            if len(self._listing.ranks) < RANKS_LIMIT:
                self._listing.ranks.append(int(match["rank"]))
        elif self._listing:
            found.remarks.append(_remark(match, "error", clean(self._listing, _TEXT)))
        elif self._listing is not None:
            lost = _process_of(match)
            is_dead = any(each.is_dead and (each.pid, each.host) == lost for each in self.processes)
            found.remarks.append(_remark(match, "dead" if is_dead else "unresponsive"))


def _value(match: re.Match[str]) -> str:
    return "0" if match["none"] else match["count"] or match["status"]


def _remark(match: re.Match[str], kind: NcclRemarkKind, error: str = "") -> NcclRemark:
    return NcclRemark(int(match["rank"]), kind, *_process_of(match), error=error)


def _process_of(match: re.Match[str]) -> tuple[int | None, str]:
    pid, host = match["pid"], match["host"]
    return int(pid) if pid else None, clean(host, _TEXT) if host else ""
