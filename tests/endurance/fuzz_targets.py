"""The parsers that `tests.endurance.fuzz` feeds, each with real input to start from."""

from __future__ import annotations

import atexit
import contextlib
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from msgspec.structs import replace

from mpwatch.attach.native import elf
from mpwatch.attach.outcomes import Refused
from mpwatch.collect.hook import decode
from mpwatch.collect.hook.decode import decode_slice
from mpwatch.collect.host import host
from mpwatch.collect.host.gpu import GpuCollector
from mpwatch.collect.job import flight_recorder, nccl_ras
from mpwatch.collect.process import fds, identify, memory, procfs, written_errors
from mpwatch.collect.process.memory import parse_mappings
from mpwatch.collect.process.py_spy import parse_dump
from mpwatch.collect.process.syscall_waits import parse_syscall
from mpwatch.hook import requests, wire
from mpwatch.hook.transport.connection import Connection
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import WantedFrame
from mpwatch.model.sanitize import clean
from mpwatch.nodes.wire.messages import (
    NODE_LIMIT_BYTES,
    FrameReader,
    Hello,
    NotAMessage,
    SnapshotPart,
    Summary,
    encode,
    message_of_head,
    message_of_node,
    node_frame,
)
from mpwatch.nodes.wire.summary import MalformedSummary, SummaryReader
from mpwatch.nodes.wire.view_codec import NotASnapshot, SnapshotDecoder, SnapshotEncoder
from mpwatch.observe.recording.codec import SCHEMA, Header, LineEncoder, read_header
from mpwatch.observe.recording.file import NotARecording, Recording, pack
from mpwatch.observe.state.fold import Fold
from mpwatch.report.html import report_html
from mpwatch.report.json import snapshot_json, text_of
from mpwatch.report.prometheus import exposition
from mpwatch.report.text import dump_text
from tests.builders import elf_files, report_job
from tests.builders.samples import small_job
from tests.unit.collect.hook.test_decode import ring
from tests.unit.collect.hook.test_fuzz_hook import check_ring
from tests.unit.collect.process import test_fuzz_procfs as real
from tests.unit.collect.process.test_fuzz_procfs import is_clean

ME = ProcessId(10, 10)
WANTED = (WantedFrame(10, "train.py", "step", ("loss", "step")),)
FOLDER = Path(tempfile.mkdtemp(prefix="mpwatch-fuzzed-"))
"""A made-up /proc, and the recording that is read."""
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
for place in ("10/net", "10/fd", "self"):
    (FOLDER / place).mkdir(parents=True)
PROC = str(FOLDER)


def wire_frames(data: bytes) -> None:
    """The stream of a hook."""
    start = 0
    with contextlib.suppress(ValueError):
        while (found := decode.frame(data, start)) is not None:
            kind, payload, start = found
            if kind == wire.RECORDS:
                decode.records(ME, 1.0, payload)
                continue
            said = decode.parse_object(payload)
            decode.note(ME, dict(said))
            decode.gauges(ME, 1.0, dict(said))
            decode.stacks(ME, 1.0, dict(said))
            read = decode.values(ME, 1.0, dict(said), WANTED)
            assert all(is_clean(each.type) for frame in read.frames for each in frame.values)
            with contextlib.suppress(ValueError):
                decode.hello(ME, 1.0, said)


SESSION: Any = SimpleNamespace(
    system=SimpleNamespace(monotonic_ns=lambda: 1, thread_time_ns=lambda: 1),
    server=SimpleNamespace(cpu_ns=lambda: 1),
    ring=SimpleNamespace(handed_out=lambda: 1, slots=16),
    wrapper_ns=1,
    jobs=[],
    gauges={"cuda": dict},
)


def hook_requests(data: bytes) -> None:
    """The stream of an observer, as the hook reads it."""
    connection = object.__new__(Connection)
    connection._inbox = bytearray(data)
    with contextlib.suppress(ValueError, RecursionError):
        while (request := connection._next_request()) is not None:
            reply = requests.answer(SESSION, request)
            json.dumps({key: value for key, value in (reply or {}).items() if key != wire.AS_TEXT})
            SESSION.jobs.clear()


def rings(data: bytes) -> None:
    """A ring, and a slice of one."""
    check_ring(data)
    whole = data[: len(data) // wire.RECORD_BYTES * wire.RECORD_BYTES]
    decode_slice(whole)


def read_all(data: bytes) -> None:
    """Write a file and read it as a recording."""
    path = FOLDER / "job.mpw"
    path.write_bytes(data)
    with contextlib.suppress(NotARecording), Recording(str(path)) as recording:
        for _ in recording.inputs():
            pass


def header() -> bytes:
    """The first member of a recording."""
    first = LineEncoder().header(Header(SCHEMA, "1", "host", ME, 1000.0, 1.7e9))
    return pack(first, 1000.0, 1000.0, is_key=False)


def recorded_lines(data: bytes) -> None:
    """Lines in an undamaged container: a checksum would keep the fuzzer out."""
    read_header(data)
    read_all(header() + pack(data, 1000.0, 1001.0, is_key=True))


def lines_of_a_job() -> bytes:
    """Two readings of a job, the second as a change."""
    encoder = LineEncoder()
    return encoder.line(small_job(1000.0)) + encoder.line(small_job(1001.0))


def node_messages(data: bytes) -> None:
    """What a node or a head sends, behind the checksum of a frame."""
    reader = FrameReader(NODE_LIMIT_BYTES)
    for frame in reader.feed(encode(data, NODE_LIMIT_BYTES) + data):
        with contextlib.suppress(NotAMessage, MalformedSummary):
            message = message_of_node(frame.body)
            if isinstance(message, Summary):
                SummaryReader().apply(message)
        with contextlib.suppress(NotAMessage):
            message_of_head(frame.body)


def opened_job(data: bytes) -> None:
    """A snapshot of an opened job, inflated: a checksum would keep the fuzzer out."""
    with contextlib.suppress(NotASnapshot):
        SnapshotDecoder().snapshot(zlib.compress(data, 1))


def whole_snapshot() -> bytes:
    """A snapshot as its node sends it at first, inflated."""
    fold = Fold()
    fold.apply(small_job(1000.0))
    return zlib.decompress(SnapshotEncoder().change(fold.snapshot()))


def proc_files(data: bytes) -> None:
    """Files of procfs and of control groups; the first byte chooses which."""
    if data:
        PROC_FILES[data[0] % len(PROC_FILES)](data[1:])


def _in(name: str, read: Callable[[], object]) -> Callable[[bytes], object]:
    """Read the bytes as this file of the made-up /proc."""

    def read_file(data: bytes) -> None:
        (FOLDER / name).write_bytes(data)
        with contextlib.suppress(ProcessLookupError, ValueError):
            read()

    return read_file


def _stat(data: bytes) -> None:
    procfs.parent_in(data)
    stat = procfs.stat_or_none(data)
    assert stat is None or is_clean(stat.name)


def _maps(data: bytes) -> None:
    assert all(is_clean(path) for *_, path in parse_mappings(data).spans)


def _cgroups(data: bytes) -> None:
    membership, _, mounts = data.partition(b"\n\n")
    (FOLDER / "10/cgroup").write_bytes(membership)
    (FOLDER / "self/mountinfo").write_bytes(mounts.replace(b"/sys/fs", b"/nowhere"))
    sample = host.CgroupReader(PROC, 10).sample()
    assert sample is None or is_clean(sample.path)


PROC_FILES: Sequence[Callable[[bytes], object]] = (
    _stat,
    _maps,
    _cgroups,
    parse_syscall,
    _in("10/status", lambda: procfs.read_status(PROC, 10)),
    _in("10/io", lambda: procfs.read_io(PROC, 10)),
    _in("10/limits", lambda: fds.limits(PROC, 10)),
    _in("10/smaps_rollup", lambda: memory.read_rollup(PROC, 10, 1.0)),
    _in("10/net/tcp", lambda: host.port_owners(PROC, 10)),
    _in("10/uid_map", lambda: identify.uid_inside(0, 10, PROC)),
)
SAMPLES_OF_PROC = (
    real.STAT, real.MAPS, real.CGROUP + b"\n\n" + real.MOUNTS, b"202 0x7f01 0x80 0x0\n",
    real.STATUS, b"rchar: 10\nwchar: 20\n", real.LIMITS, real.ROLLUP, real.NET,
    b"         0          0 4294967295\n",
)  # fmt: skip


def py_spy(data: bytes) -> None:
    """What `py-spy dump --json` prints."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        for stack in parse_dump(ME, 1.0, data):
            assert is_clean(stack.thread_name)
            assert all(is_clean(frame.function) for frame in stack.frames)


STACKS = b"""[{"pid": 10, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 10,
 "active": true, "owns_gil": false, "frames": [{"name": "get", "filename": "queues.py",
 "line": 7, "locals": [{"name": "x", "repr": "1"}]}]}]"""


def command_line(data: bytes) -> None:
    """A command line, with its ports."""
    (FOLDER / "10/environ").write_bytes(b"")
    (FOLDER / "10/cmdline").write_bytes(data)
    words = procfs.read_cmdline(PROC, 10)
    assert len(words) <= procfs.ARGUMENT_COUNT_LIMIT + 1
    assert all(map(is_clean, words))
    python_program(words)
    host.named_ports(PROC, 10)


def environment(data: bytes) -> None:
    """An initial environment."""
    (FOLDER / "10/cmdline").write_bytes(b"")
    (FOLDER / "10/environ").write_bytes(data)
    found = procfs.read_environment(PROC, 10, frozenset((b"RANK", b"TMPDIR")))
    assert all(map(is_clean, found.values()))
    host.named_ports(PROC, 10)


def elf_file_of(data: bytes) -> None:
    """A file that a target has loaded."""
    with contextlib.suppress(Refused):
        elf.layout(
            elf_files.PID, elf_files.placed(FOLDER, data), frozenset((elf_files.FUNCTION,)), PROC
        )


def nccl_ras_answer(data: bytes) -> None:
    """What NCCL RAS answers."""
    with contextlib.suppress(nccl_ras.NotAnAnswer):
        for communicator in nccl_ras.parse(data).communicators:
            assert is_clean(communicator.name)
            assert all(is_clean(each.host) for each in communicator.remarks)


def recorder_dump(data: bytes) -> None:
    """A dump of torch's flight recorder, and the answer of its server."""
    path = FOLDER / "nccl_trace_rank_0"
    path.write_bytes(data)
    with contextlib.suppress(flight_recorder.NotADump):
        record = flight_recorder.read_dump(str(path))
        assert all(map(is_clean, record.groups))
        flight_recorder.gauge_of(record)


def errors_written(data: bytes) -> None:
    """The end of a file of standard error."""
    for error in written_errors.tracebacks(data, 0, {10: ME}):
        assert all(is_clean(each.type) for each in (error.raised, error.first) if each)


class Nvml:
    """NVML, as it answers where a driver is broken: each answer is of the next bytes."""

    class NVMLError(Exception):
        """As NVML's own."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *_: self._answer(name)

    def _take(self, count: int) -> bytes:
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def _number(self) -> int:
        return int.from_bytes(self._take(8), "little")

    def _answer(self, name: str) -> Any:
        if (self._take(1) or b"\0")[0] > 240:
            raise self.NVMLError(self._take(20).decode("utf-8", "surrogateescape"))
        if name.endswith("Count"):
            return (self._take(1) or b"\0")[0] % 5
        if name.endswith(("Name", "UUID")):
            return self._take(32)
        if name.endswith("MemoryInfo"):
            return SimpleNamespace(used=self._number(), total=self._number())
        if name.endswith("UtilizationRates"):
            return SimpleNamespace(gpu=self._number())
        if name.endswith("RunningProcesses"):
            count = (self._take(1) or b"\0")[0] % 4
            numbers = [(self._number(), self._number()) for _ in range(count)]
            return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in numbers]
        return self._number()


def gpus(data: bytes) -> None:
    """What NVML answers, in reports."""
    nvml = Nvml(data)
    found = GpuCollector(load=lambda: nvml).collect()
    for gpu in found.gpus or ():
        assert is_clean(gpu.name)
        assert all(map(is_clean, gpu.problems))
    snapshot = replace(report_job.job(), gpus=found.gpus or ())
    json.loads(text_of(snapshot_json(snapshot, with_stacks=False)))
    assert all(line.isprintable() for line in dump_text(snapshot).split("\n"))
    exposition(snapshot)


DATA = Path(__file__).parents[1] / "data"


def text(data: bytes) -> None:
    """Any text of another process."""
    for raw in (data, data.decode("utf-8", "surrogateescape")):
        assert is_clean(clean(raw))


def reports(data: bytes) -> None:
    """Text of another process, sanitized as where it enters, in every kind of report."""
    said = [clean(part) for part in data.split(b"\n")[:4]]
    name, doing, problem, host_name = (said * 4)[:4]
    snapshot = report_job.job()
    first, *others = snapshot.processes
    told = replace(
        snapshot,
        processes=(replace(first, label=name, doing=doing), *others),
        findings=(replace(report_job.finding(), summary=problem, evidence=(doing,)),),
        problems=(problem,),
        host=replace(snapshot.host, hostname=host_name),
    )
    assert Elements(report_html(told)).found <= Elements(report_html(snapshot)).found
    for line in exposition(told).splitlines():
        assert line.startswith("# ") or SERIES.fullmatch(line), line
    document = json.loads(text_of(snapshot_json(told, with_stacks=True)))
    assert document["processes"][0]["label"] == name
    assert all(line.isprintable() for line in dump_text(told).split("\n"))


SERIES = re.compile(
    r'mpwatch_[a-z_]+(\{[a-z]+="([^"\\\n]|\\[\\"n])*"(,[a-z]+="([^"\\\n]|\\[\\"n])*")*\})? \S+'
)


class Elements(HTMLParser):
    """The elements of a page, and their attributes without the values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, ...]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, *(name for name, _ in attrs)))


def stream(kind: int, *contents: object) -> bytes:
    """Frames of one kind."""
    return b"".join(wire.pack_frame(kind, json.dumps(each).encode()) for each in contents)


VALUES_OF_FRAME = {
    "frame": 0,
    "line": 7,
    "values": {
        "loss": {"type": "Tensor", "has_graph": True},
        "step": {"type": "int", "number": 60, "length": 1},
    },
}
WRITTEN = b"""Process SpawnProcess-1:
Traceback (most recent call last):
  File "train.py", line 7, in step
    loss.backward()
RuntimeError: boom

[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 9, in <module>
[rank1]:     main()
[rank1]: KeyError: 'a'
"""


class Target(NamedTuple):
    """One parser."""

    read: Callable[[bytes], None]
    samples: Callable[[], Sequence[bytes]]


TARGETS = {
    "wire": Target(
        wire_frames,
        lambda: (
            stream(wire.HELLO, {"protocol": wire.PROTOCOL, "start_ticks": 10, "pid": 10}),
            stream(wire.NOTE, {"kind": "exit", "at_ns": 5, "n": 1, "code": 0}),
            stream(wire.REPLY, {"id": 1, "threads": [{"tid": 1, "frames": [["f", "g", 1]]}]}),
            stream(wire.REPLY, {"id": 1, "frames": [VALUES_OF_FRAME]}),
            wire.pack_frame(wire.RECORDS, wire.LOST.pack(0) + bytes(wire.RECORD_BYTES)),
        ),
    ),
    "requests": Target(
        hook_requests,
        lambda: (
            stream(wire.REQUEST, {"ask": "ping", "id": 1}, {"ask": "gauges", "also": ["cuda"]}),
            stream(wire.REQUEST, {"ask": "detach", "id": 2}),
            stream(wire.REQUEST, {"ask": "values", "frames": [[1, "f", "g", ["step", "a.b"]]]}),
        ),
    ),
    "ring": Target(rings, lambda: (bytes(ring(5, 8)), bytes(ring(40, 16)))),
    "recording": Target(
        read_all,
        lambda: (header() + pack(lines_of_a_job(), 1000.0, 1001.0, is_key=True), header()),
    ),
    "recorded-lines": Target(recorded_lines, lambda: (lines_of_a_job(),)),
    "procfs": Target(
        proc_files, lambda: [bytes((n,)) + each for n, each in enumerate(SAMPLES_OF_PROC)]
    ),
    "py-spy": Target(py_spy, lambda: (STACKS,)),
    "command-lines": Target(
        command_line,
        lambda: (b"python\0-m\0torch.distributed.run\0--master_port=29500\0train.py\0",),
    ),
    "environments": Target(environment, lambda: (b"RANK=3\0MASTER_PORT=29501\0TMPDIR=/t\0",)),
    "elf": Target(elf_file_of, lambda: [bytes(elf_files.elf_file(each)) for each in (True, False)]),
    "text": Target(text, lambda: [*real.HOSTILE]),
    "reports": Target(reports, lambda: [*real.HOSTILE, b"\n".join(real.HOSTILE)]),
    "node-messages": Target(
        node_messages,
        lambda: [
            node_frame(each)[len(encode(b"", 0)) :]
            for each in (
                Hello("1", "host", 5),
                Summary(0, 1.0, True, {"ranks": {"1.5": {"pid": 1, "label": "rank 0"}}}),
                SnapshotPart(1, 0, True, True, b"x"),
            )
        ],
    ),
    "opened-jobs": Target(opened_job, lambda: (whole_snapshot(),)),
    "nccl-ras": Target(
        nccl_ras_answer,
        lambda: [path.read_bytes() for path in sorted(DATA.glob("nccl-ras/2*"))],
    ),
    "flight-recorder": Target(
        recorder_dump,
        lambda: [path.read_bytes() for path in sorted(DATA.glob("flight-recorder/*/nccl*_0*"))],
    ),
    "written-errors": Target(errors_written, lambda: (WRITTEN,)),
    "gpus": Target(gpus, lambda: (bytes(range(256)), b"\0\1" + bytes(120))),
}
