"""Recordings of a job on several machines: what the head received, with the times of arrival.

The file is a recording as on one machine (`mpwatch.observe.recording.file`: whole gzip members of
JSON lines, so that `zcat` reads it), with lines of its own:

    {"k": "job", "v": {"schema", "mpwatch", "protocol", "host", "spec", "wall_s"}}
    {"k": "node", "v": {"at_s", "node", "state", "problem", "host", "version",
                        "clock_offset_s", "clock_error_s", "heard_s", "cause"}}
    {"k": "message", "v": {"at_s", "node", "message", "is_repeated"}}

`job` is the first line. `at_s` is seconds since the recording began, by the clock of the head. A
`node` line is written when one of its values has changed. `message` is a message of the node
(`mpwatch.nodes.wire.messages`). Every `KEY_S` seconds a member begins with the state of all nodes,
where reading can begin; their summaries in it are repeated. Nothing that is read here is executed,
and all of its text is sanitized.
"""

from __future__ import annotations

import bisect
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

import mpwatch
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.sanitize import clean
from mpwatch.nodes.across.judge import JobJudge, job_findings
from mpwatch.nodes.head.node import NodeState, NodeView, unfinished, with_silence
from mpwatch.nodes.launchers.launch import LaunchCause
from mpwatch.nodes.wire.messages import PROTOCOL, Answer, FromNode, Hello, Summary, sanitized
from mpwatch.nodes.wire.summary import MalformedSummary, SummaryReader
from mpwatch.observe.recording.codec import CANNOT_ENCODE, JOB_KIND, SCHEMA, envelope_of
from mpwatch.observe.recording.file import (
    LineWriter,
    MemberReader,
    NotARecording,
    check_schema,
)

KEY_S = 60.0
"""Interval of members that begin with the state of all nodes."""
FILE_BYTES_LIMIT = 8 << 30
"""A recording that has become so long takes nothing more."""
NODES_LIMIT = 20_000
"""More nodes of a recording are not read."""
NODE_KIND, MESSAGE_KIND = "node", "message"


class JobHeader(msgspec.Struct):
    """The first line."""

    schema: int
    mpwatch: str = ""
    """Version of mpwatch that wrote it."""
    protocol: int = PROTOCOL
    """Version of the messages."""
    host: str = ""
    """The machine of the head."""
    spec: str = ""
    """The name of the job."""
    wall_s: float = 0.0


class NodeLine(msgspec.Struct, frozen=True):
    """What the head knew of one node besides its messages."""

    at_s: float
    node: str
    state: NodeState
    """Never `silent`: that follows from the times of its messages."""
    problem: str = ""
    host: str = ""
    version: str = ""
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
    heard_s: float | None = None
    """When its last message arrived."""
    cause: LaunchCause = ""
    """Why it was not started."""


class MessageLine(msgspec.Struct, frozen=True):
    """A message of a node."""

    at_s: float
    node: str
    message: FromNode
    is_repeated: bool = False
    """Whether it is the state of the node as it was known, and nothing was received."""


RecordedLine: TypeAlias = NodeLine | MessageLine


class JobRecordingWriter(LineWriter):
    """Appends what the head receives to a new file; see `LineWriter`."""

    def __init__(
        self,
        path: str,
        spec: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        limit_bytes: int = FILE_BYTES_LIMIT,
    ) -> None:
        """Create the file and write its first line.

        Raises:
            CannotRecord: It exists already, or cannot be written.
        """
        self._encode = msgspec.json.Encoder().encode
        self._began_s = clock()
        self._limit_bytes = limit_bytes
        self._nodes: dict[str, NodeLine] = {}
        header = JobHeader(
            SCHEMA, mpwatch.__version__, PROTOCOL, socket.gethostname(), spec, wall_clock()
        )
        super().__init__(path, self._line(JOB_KIND, header), 0.0, clock)

    @property
    def is_long_enough(self) -> bool:
        """Whether the limit of the file is reached; nothing more is written."""
        return self._file.written_bytes >= self._limit_bytes

    def message(self, node: str, message: FromNode) -> None:
        """Write a message of a node."""
        at_s = self._at_s()
        self._write(MESSAGE_KIND, MessageLine(at_s, node, message), at_s)

    def states(
        self, views: Iterable[NodeView], summaries: Callable[[], Iterable[tuple[str, Summary]]]
    ) -> None:
        """Write what has changed of the nodes, and at intervals the whole state.

        Args:
            views: All nodes.
            summaries: Makes the state of each node as a message.
        """
        at_s = self._at_s()
        is_key = self._clock() - self._lines.key_s >= KEY_S
        for place, view in enumerate(views):
            line = _node_line(at_s, view)
            before = self._nodes.get(view.name)
            if is_key or before is None or not _is_same(line, before):
                self._nodes[view.name] = line
                self._write(NODE_KIND, line, at_s, is_key=is_key and place == 0)
        if is_key:
            for name, message in summaries():
                self._write(MESSAGE_KIND, MessageLine(at_s, name, message, True), at_s)

    def _at_s(self) -> float:
        return self._clock() - self._began_s

    def _write(self, kind: str, value: object, at_s: float, *, is_key: bool = False) -> None:
        if self.is_long_enough:
            self._lose(1, f"it has the greatest length of {self._limit_bytes} bytes")
            return
        if not self._has_room():
            return
        try:
            line = self._line(kind, value)
        except CANNOT_ENCODE as error:
            self._lose(1, str(error))
            return
        self._add(line, at_s, self._clock(), is_key=is_key)

    def _line(self, kind: str, value: object) -> bytes:
        return self._encode({"k": kind, "v": value}) + b"\n"


def _node_line(at_s: float, view: NodeView) -> NodeLine:
    is_silent = view.state == "silent"
    return NodeLine(
        at_s,
        view.name,
        "live" if is_silent else view.state,
        "" if is_silent else view.problem,
        view.host,
        view.version,
        view.clock_offset_s,
        view.clock_error_s,
        None if view.last_seen_s is None else at_s - view.last_seen_s,
        view.cause,
    )


def _is_same(one: NodeLine, other: NodeLine) -> bool:
    """Whether two lines say the same of a node, whenever it was."""
    return msgspec.structs.replace(one, at_s=other.at_s, heard_s=other.heard_s) == other


class JobRecording(MemberReader):
    """A recording of several nodes opened for reading; see `MemberReader`.

    Attributes:
        header: The job, the version and the time.
    """

    header: JobHeader

    def lines(self, first_member: int = 0) -> Iterator[tuple[int, RecordedLine]]:
        """The lines in the order they were recorded, each with the index of its member."""
        not_understood = 0
        for index, line in self._numbered_lines(first_member):
            if line is None:
                continue
            try:
                decoded = _decoded(line)
            except (ValueError, RecursionError, msgspec.MsgspecError):
                not_understood += 1
                continue
            if decoded is not None:
                yield index, decoded
        if not_understood:
            self._note(
                f"{not_understood} lines of {self.path} were not understood;"
                " it may have been written by a later mpwatch."
            )

    def _read_header(self, line: bytes) -> float:
        try:
            envelope = envelope_of(line)
            if envelope.k != JOB_KIND:
                raise ValueError(envelope.k)
            header = msgspec.json.decode(envelope.v, type=JobHeader)
        except (ValueError, msgspec.MsgspecError):
            raise NotARecording(
                f"{self.path} is not a recording of a job on several machines."
            ) from None
        check_schema(self.path, header.schema, clean(header.mpwatch, 40))
        if header.protocol > PROTOCOL:
            raise NotARecording(
                f"{self.path} has messages of protocol {header.protocol}; this mpwatch "
                f"{mpwatch.__version__} reads protocol {PROTOCOL}."
            )
        header.mpwatch, header.host = clean(header.mpwatch, 40), clean(header.host)
        header.spec = clean(header.spec)
        self.header = header
        return 0.0


def _decoded(line: bytes) -> RecordedLine | None:
    """A line with its text sanitized; `None` for one of another kind.

    Raises:
        ValueError: It is no line, or not of the shape of its kind.
    """
    envelope = envelope_of(line)
    if envelope.k == NODE_KIND:
        node: NodeLine = _decoder(NodeLine).decode(envelope.v)
        texts = {name: clean(getattr(node, name)) for name in ("node", "problem", "host")}
        return msgspec.structs.replace(node, **texts, version=clean(node.version, 40))
    if envelope.k == MESSAGE_KIND:
        each: MessageLine = _decoder(MessageLine).decode(envelope.v)
        return MessageLine(each.at_s, clean(each.node), sanitized(each.message), each.is_repeated)
    return None


# Made on first use: making a decoder walks all types.


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@dataclass(slots=True)
class _RecordedNode:
    """One node as far as the recording was read."""

    line: NodeLine
    heard_s: float | None = None
    has_summary: bool = False
    summaries: SummaryReader = field(default_factory=SummaryReader)
    document: dict[str, Any] | None = None

    def view(self, now_s: float) -> NodeView:
        """The node as it was at a moment."""
        line = self.line
        last_seen_s = None if self.heard_s is None else max(0.0, now_s - self.heard_s)
        state, problem = with_silence(line.state, line.problem, last_seen_s)
        return NodeView(
            name=line.node,
            state=state,
            last_seen_s=last_seen_s,
            problem=problem,
            host=line.host,
            version=line.version,
            summary=self.summaries.summary() if self.has_summary else None,
            clock_offset_s=line.clock_offset_s,
            clock_error_s=line.clock_error_s,
            cause=line.cause,
        )


class JobPlayer:
    """Replays a recording of several nodes as one job.

    Attributes:
        at_s: The moment that is shown, seconds since the recording began.
        problems: What could not be replayed, as sentences.
    """

    def __init__(self, recording: JobRecording) -> None:
        self.at_s = 0.0
        self.problems: list[str] = []
        self._recording = recording
        self._nodes: dict[str, _RecordedNode] = {}
        self._lines: Iterator[tuple[int, RecordedLine]] = iter(())
        self._next: tuple[int, RecordedLine] | None = None
        self._begin(0)

    @property
    def length_s(self) -> float:
        """Seconds from the beginning to the last line."""
        return self._recording.length_s

    def views(self) -> tuple[NodeView, ...]:
        """All nodes as they were at `at_s`."""
        return tuple(node.view(self.at_s) for node in self._nodes.values())

    def documents(self) -> Mapping[str, dict[str, Any]]:
        """The last answer of each node that has given one, by name."""
        return {
            name: node.document for name, node in self._nodes.items() if node.document is not None
        }

    def advance(self, to_s: float, on_part: Callable[[float], None] | None = None) -> None:
        """Go on to a moment, or to the end if that is sooner.

        Args:
            to_s: Seconds since the recording began.
            on_part: Called with the part of the recording that was read, 0 to 1.
        """
        while self._next is not None and self._next[1].at_s <= to_s:
            index, line = self._next
            self._apply(line)
            self._next = next(self._lines, None)
            if on_part is not None:
                on_part(index / len(self._recording.members))
        self.at_s = max(self.at_s, min(to_s, self.length_s))

    def seek(self, to_s: float) -> None:
        """Go to a moment, also to an earlier one."""
        to_s = max(0.0, min(to_s, self.length_s))
        index = self._key_before(to_s)
        if to_s < self.at_s or self._recording.members[index].first_s > self.at_s:
            self.at_s = 0.0
            self._begin(index)
        self.advance(to_s)

    def _key_before(self, to_s: float) -> int:
        """The member at which reading begins to show a moment."""
        members = self._recording.members
        keys = [0, *(index for index, member in enumerate(members) if member.is_key)]
        place = bisect.bisect_right([members[index].first_s for index in keys], to_s)
        return keys[max(0, place - 1)]

    def _begin(self, member: int) -> None:
        self._nodes = {}
        self._lines = self._recording.lines(member)
        self._next = next(self._lines, None)

    def _apply(self, line: RecordedLine) -> None:
        node = self._node(line)
        if node is None:
            return
        if isinstance(line, NodeLine):
            node.line, node.heard_s = line, line.heard_s
            return
        if not line.is_repeated:
            node.heard_s = line.at_s
        message = line.message
        if isinstance(message, Summary):
            self._apply_summary(node, message)
        elif isinstance(message, Answer):
            node.document = message.document
        elif isinstance(message, Hello):
            changed = {"state": "live", "problem": "", "host": message.host}
            node.line = msgspec.structs.replace(node.line, **changed, version=message.mpwatch)

    def _node(self, line: RecordedLine) -> _RecordedNode | None:
        """The node of a line; `None` for more nodes than are read."""
        node = self._nodes.get(line.node)
        if node is None and len(self._nodes) < NODES_LIMIT:
            node = self._nodes[line.node] = _RecordedNode(NodeLine(line.at_s, line.node, "live"))
        return node

    def _apply_summary(self, node: _RecordedNode, message: Summary) -> None:
        try:
            # A summary that does not fit follows a part that is missing; a later one is whole.
            node.has_summary = node.summaries.apply(message) or node.has_summary
        except MalformedSummary as error:
            problem = f"A part of the recording was left out: {clean(str(error))}."
            if problem not in self.problems:
                self.problems.append(problem)


JUDGED_S = 5.0
"""Interval at which findings are looked for in a recording."""
JUDGED_MOST = 200
"""So often at most: a job of 1,000 nodes of 64 ranks takes 0.04 to 0.1 s of cpu each time."""


def replayed_to_end(
    path: str, on_part: Callable[[float], None] | None = None
) -> tuple[JobRecording, JobPlayer, Sequence[NodeView], list[JobFinding]]:
    """A recording, closed, its player, and the nodes and findings of the whole job at its end.

    Findings that no longer hold then come last: where ranks were stuck until a node was lost or the
    job was ended, they say why.

    Raises:
        OSError: The file cannot be opened.
        NotARecording: It is none, or it was made by a later mpwatch.
    """
    with JobRecording(path) as recording:
        player = JobPlayer(recording)
        judge = JobJudge()
        past: dict[object, JobFinding] = {}
        interval_s = max(JUDGED_S, player.length_s / JUDGED_MOST)
        for step in range(1, 1 + int(player.length_s / interval_s)):
            player.advance(step * interval_s, on_part)
            for each in judge.findings(player.views(), player.at_s):
                if each.severity > Severity.INFO:
                    past[each.key] = replace(each, resolved_s=player.at_s)
        player.advance(float("inf"), on_part)
    views = [unfinished(view) for view in player.views()]
    findings = job_findings(views)
    still = {each.key for each in findings}
    resolved = [each for key, each in past.items() if key not in still]
    resolved.sort(key=lambda each: -each.severity)
    return recording, player, views, [*findings, *resolved]


def problems_of(recording: JobRecording, player: JobPlayer) -> Sequence[str]:
    """What could not be read, as sentences."""
    return [*recording.problems, *player.problems]
