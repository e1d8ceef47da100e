"""Reads what NCCL RAS answers to `VERBOSE STATUS`: as JSON since NCCL 2.28.7, else as text.

Both forms are from the sources of NCCL, `src/ras/client_support.cc` of 2.24.3, 2.26.2, 2.28.7 and
2.30.7: the text from the formats of `rasOutAppend` in `rasClientRunInit` and `rasClientRunComms`,
the JSON from the functions `jsonWrite*`, and from the examples in `troubleshooting/ras.rst`. The
text of 2.24 and 2.25 counts collectives of all kinds together, and names missing ranks without
their processes. All of it is hostile input: what is of another form is left out.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpwatch.model.collectives import (
    NcclAnswer,
    NcclCommunicator,
    NcclPart,
    NcclProcess,
    NcclRemark,
    NcclRemarkKind,
)
from mpwatch.model.sanitize import clean

COMMUNICATORS = 64
"""Kept of those with something to tell."""
REMARKS = 64
"""Kept of one communicator; and as many processes of an answer."""
PARTS = 64
RANKS = 16384
"""Numbers of ranks kept of one part."""
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
                yield NcclPart(what, value, len(numbers), tuple(sorted(numbers))[:RANKS])


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


@dataclass(slots=True)
class _Part:
    """Ranks that are equal in one respect, as far as it was read."""

    what: str
    value: str
    count: int
    ranks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Communicator:
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
            others = set(range(min(self.size or 0, RANKS))) - listed
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
            if len(self._listing.ranks) < RANKS:
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
