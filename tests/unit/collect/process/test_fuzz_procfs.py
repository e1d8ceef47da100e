"""Arbitrary and damaged text where procfs, cgroups, netlink or py-spy are parsed.

Each parser returns a bounded value of its type, or raises what it documents; never anything else.
`MPWATCH_FUZZ_EXAMPLES=100000` makes the tests longer; how many inputs were tried is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mpwatch.collect.host import host
from mpwatch.collect.host.host import CgroupReader, parse_membership, parse_mounts
from mpwatch.collect.process import fds, identify, memory, procfs, syscall_waits
from mpwatch.collect.process.fds import read_sockets
from mpwatch.collect.process.last_run import last_run_ms
from mpwatch.collect.process.memory import parse_mappings
from mpwatch.collect.process.py_spy import LOCALS_LIMIT, parse_dump
from mpwatch.collect.process.syscall_waits import WaitResolver, parse_syscall
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FRAMES_LIMIT
from mpwatch.model.sanitize import MESSAGE_LIMIT, NAME_LIMIT, clean

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("MPWATCH_FUZZ_EXAMPLES", "150"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEN = ProcessId(10, 10)
INPUTS = {"tried": 0}


@pytest.fixture(autouse=True, scope="module")
def _print_inputs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print how many inputs were tried, where that was asked for."""
    yield
    if "MPWATCH_FUZZ_EXAMPLES" in os.environ:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{INPUTS['tried']} inputs tried in {Path(__file__).name}")


HOSTILE = (
    b"\x1b[2J", b"\x1b]52;c;AAAA\x07", "\u202e\u2066\u200b".encode(), b"[bold]", b"<script>",
    b"\xff\xfe", b"\x00", b"\n", b") R 1 ", b"(", b" (deleted)", b"9" * 5000, b"-1", b"max",
    b"0x", b"ffffffffffffffffffff", b"/dev/shm/torch_", b"pipe:[", b"x" * 3000,
)  # fmt: skip
NOISE = st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=30))
STAT = (
    b"10 (pt_data_worker) S 1 500 600 0 -1 64 11 0 12 0 5 2 0 0 20 0 3 0 10 1000 25 " + b"0 " * 29
)
STATUS = (
    b"Name:\tx\nTgid:\t10\nUid:\t0\t0\t0\t0\nNSpid:\t10\t1\nRssShmem:\t12 kB\nSigCgt:\t0002\n"
    b"SigPnd:\t00\nCapEff:\t0\nCpus_allowed:\tff,0000000f\nvoluntary_ctxt_switches:\t7\n"
    b"nonvoluntary_ctxt_switches:\t3\nTracerPid:\t0\n"
)
MAPS = (
    b"7f0000000000-7f0000001000 rw-s 00000000 00:1b 41 /dev/shm/torch_1_2_3 (deleted)\n"
    b"7f0000030000-7f0000031000 r-xp 00000000 08:01 12 /x/torch/lib/libtorch_cpu.so\n"
    b"7f0000050000-7f0000051000 rw-s 00000000 00:01 77 /memfd:x (deleted)\n"
)
LIMITS = b"Max open files            1024                 4096                 files\n"
CGROUP = b"4:memory:/a/b\n0::/user.slice/x\n"
MOUNTS = (
    b"30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    b"31 20 0:27 /a\\040b /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
NET = (
    b"  sl  local_address rem_address   st\n"
    b"   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 555 1\n"
)
ROLLUP = b"Rss: 100 kB\nPss: 60 kB\nPrivate_Clean: 10 kB\nSwap: 0 kB\n"


@st.composite
def broken(draw: st.DrawFn, sample: bytes) -> bytes:
    """Real text with pieces replaced, put in, repeated or cut off; or no such text at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=400))
    data = bytearray(sample)
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 12)))
        data[begin:end] = draw(NOISE)
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def is_clean(text: str, limit: int = NAME_LIMIT) -> bool:
    """Whether a text can neither move a cursor nor fill the memory."""
    return len(text) <= limit and text.isprintable() and "\x1b" not in text


class Proc:
    """A folder with one process that probes read as `/proc`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "10/net").mkdir(parents=True)
        (root / "10/fd").mkdir()
        (root / "self").mkdir()

    def __str__(self) -> str:
        INPUTS["tried"] += 1
        return str(self.root)

    def write(self, path: str, data: bytes) -> None:
        (self.root / path).write_bytes(data)


@pytest.fixture
def place(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@FUZZ
@given(broken(STAT))
def test_stat(line: bytes) -> None:
    INPUTS["tried"] += 1
    procfs.parent_in(line)
    stat = procfs.stat_or_none(line)
    if stat is not None:
        assert is_clean(stat.name)
        assert len(stat.state) == 1


@FUZZ
@given(broken(STATUS), broken(b"rchar: 10\nwchar: 20\n"), broken(LIMITS), broken(ROLLUP))
@example(status=b"", io=b"", limits=LIMITS.replace(b"1024", b"9" * 5000), rollup=b"")
def test_counters(place: Proc, status: bytes, io: bytes, limits: bytes, rollup: bytes) -> None:
    for name, data in (
        ("status", status),
        ("io", io),
        ("limits", limits),
        ("smaps_rollup", rollup),
    ):
        place.write(f"10/{name}", data)
    proc = str(place)

    counters = procfs.read_status(proc, 10)
    assert all(each is None or each >= 0 for each in counters)
    assert all(each is None or each >= 0 for each in procfs.read_io(proc, 10))
    fds.limits(proc, 10)
    with contextlib.suppress(ProcessLookupError):
        memory.read_rollup(proc, 10, 1.0)


@FUZZ
@given(broken(b"python (10, #threads: 1)\nse.exec_start  :  75893861.122598\nse.vruntime : 1\n"))
def test_last_runs(data: bytes) -> None:
    INPUTS["tried"] += 1
    found = last_run_ms(data)
    assert found is None or isinstance(found, float)


@FUZZ
@given(broken(MAPS))
@example(MAPS.replace(b"00:1b", b"9" * 5000 + b":1b"))
def test_mappings(data: bytes) -> None:
    INPUTS["tried"] += 1
    found = parse_mappings(data)

    assert found.used == data.count(b"\n")
    assert len(found.spans) <= found.used + 1
    assert all(is_clean(path) for *_, path in found.spans)
    assert all(map(is_clean, found.libraries))


@FUZZ
@given(
    broken(b"python\0-m\0torch.distributed.run\0--x=1\0train.py\0"),
    broken(b"RANK=3\0MASTER_PORT=29501\0TMPDIR=/t\0PATH=/bin\0"),
)
def test_command_lines_and_environments(place: Proc, cmdline: bytes, environ: bytes) -> None:
    place.write("10/cmdline", cmdline)
    place.write("10/environ", environ)
    proc = str(place)

    words = procfs.read_cmdline(proc, 10)
    assert len(words) <= procfs.ARGUMENT_COUNT_LIMIT + 1
    assert all(map(is_clean, words))
    python_program(words)
    found = procfs.read_environment(proc, 10, frozenset((b"RANK", b"TMPDIR")), (b"NCCL_",))
    assert all(name in ("RANK", "TMPDIR") or name.startswith("NCCL_") for name in found)
    assert all(map(is_clean, found))
    assert all(map(is_clean, found.values()))
    assert all(0 <= port < 100_000 for port in host.named_ports(proc, 10))


@FUZZ
@given(broken(NET), broken(NET))
def test_listening_ports(place: Proc, tcp: bytes, tcp6: bytes) -> None:
    for name, data in (("net/tcp", tcp), ("net/tcp6", tcp6), ("cmdline", b""), ("environ", b"")):
        place.write(f"10/{name}", data)

    assert host.port_owners(str(place), 10) == ()


@FUZZ
@given(broken(CGROUP), broken(MOUNTS))
@example(cgroup=CGROUP, mounts=MOUNTS.replace(b"/sys/fs/cgroup rw", b"\0/sys/fs/cgroup rw"))
@example(cgroup=CGROUP, mounts=MOUNTS.replace(b"/sys/fs/cgroup rw", b"\\000/cgroup rw"))
def test_where_control_groups_are(place: Proc, cgroup: bytes, mounts: bytes) -> None:
    parse_membership(cgroup)
    parse_mounts(mounts)
    place.write("10/cgroup", cgroup)
    place.write("self/mountinfo", mounts.replace(b"/sys/fs", b"/nowhere"))
    reader = CgroupReader(str(place), 10)

    sample = reader.sample()

    assert sample is None or is_clean(sample.path)
    assert all(is_clean(problem, MESSAGE_LIMIT) for problem in reader.problems)


FILES = ("memory.max", "memory.current", "memory.events", "memory.peak", "pids.max", "cpu.max")


@FUZZ
@given(
    st.lists(broken(b"max 100000\noom_kill 3\n12345\n"), min_size=6, max_size=6),
    broken(b"nr_throttled 5\n"),
)
def test_numbers_of_control_groups(place: Proc, contents: list[bytes], cpu_stat: bytes) -> None:
    for name, data in zip((*FILES, "cpu.stat"), (*contents, cpu_stat), strict=True):
        place.write(name, data)
    group = host.Group(2, "/a", (str(place),), procfs.read)

    for read in (host.memory_v2, host.memory_v1, host.pids_numbers, host.cpu_numbers):
        assert all(value is None or value >= 0 for value in read(group).values())


@FUZZ
@given(
    broken(b"202 0x7f01 0x80 0x0 0x7ffd 0x0 0xffffffff 0x7ffd1 0x7f01\n"),
    st.sampled_from("SDTtRIX"),
    st.sampled_from([*syscall_waits.names("x86_64")]),
    st.lists(st.integers(0, (1 << 64) - 1), max_size=7),
)
def test_blocked_calls(place: Proc, line: bytes, state: str, number: int, raw: list[int]) -> None:
    place.write("10/mem", bytes(range(256)) * 64)
    resolver = WaitResolver(
        str(place), 10, syscall_waits.names("x86_64"), lambda: None, lambda pid: pid, 1.0, 2.0
    )

    for call in (parse_syscall(line), syscall_waits.BlockedCall(number, tuple(raw))):
        found = resolver.resolve(call, state, None)
        if found is not None:
            assert len(found.fds) <= syscall_waits.FDS_LIMIT
            assert all(map(is_clean, found.targets))


@FUZZ
@given(broken(b"         0          0 4294967295\n"), st.integers(0, 1 << 32))
def test_user_id_maps(place: Proc, data: bytes, uid: int) -> None:
    place.write("10/uid_map", data)
    with contextlib.suppress(ValueError):
        assert isinstance(identify.uid_inside(uid, 10, str(place)), int)


@FUZZ
@given(st.lists(st.binary(max_size=120), max_size=6))
def test_answers_about_sockets(bodies: list[bytes]) -> None:
    INPUTS["tried"] += 1
    asked: list[bytes] = []

    def ask(request: bytes) -> Iterator[bytes]:
        asked.append(request)
        yield from bodies

    found = read_sockets(ask)

    assert len(found) <= 3 * len(bodies)
    assert all(is_clean(end.address, NAME_LIMIT + 20) for end in found.values())


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([each.decode("utf-8", "replace") for each in HOSTILE]),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3)
    ),
    max_leaves=6,
)


def mostly(usual: object) -> st.SearchStrategy[object]:
    """The value py-spy prints, or anything."""
    return st.one_of(st.just(usual), st.just(usual), ANY)


LOCAL = st.fixed_dictionaries({"name": mostly("x"), "repr": mostly("1")})
FRAME = st.fixed_dictionaries(
    {
        "name": mostly("Queue.get"),
        "filename": mostly("/usr/lib/python3.11/queue.py"),
        "line": mostly(7),
        "locals": st.one_of(st.none(), st.lists(LOCAL, max_size=80), ANY),
    }
)
THREAD = st.fixed_dictionaries(
    {
        "pid": mostly(10),
        "os_thread_id": mostly(10),
        "thread_name": mostly("MainThread"),
        "active": mostly(False),
        "owns_gil": mostly(True),
        "frames": st.one_of(st.lists(FRAME, max_size=4), ANY),
    }
)


@FUZZ
@given(st.one_of(st.lists(THREAD, max_size=3), ANY), st.booleans(), st.integers(0, 400))
def test_what_py_spy_prints(value: object, is_cut: bool, end: int) -> None:
    INPUTS["tried"] += 1
    data = json.dumps(value).encode()
    try:
        found = parse_dump(TEN, 1.0, data[:end] if is_cut else data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    for stack in found:
        assert is_clean(stack.thread_name)
        assert stack.tid is None or type(stack.tid) is int
        assert len(stack.frames) <= FRAMES_LIMIT
        for frame in stack.frames:
            assert is_clean(frame.function)
            assert is_clean(frame.file, 1024)
            assert type(frame.line) is int
            assert len(frame.locals) <= LOCALS_LIMIT
            assert all(is_clean(text) for pair in frame.locals for text in pair)


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_nested_json_of_py_spy_is_refused(depth: int) -> None:
    with pytest.raises((RecursionError, ValueError, TypeError, KeyError)):
        parse_dump(TEN, 1.0, b"[" * depth + b"]" * depth)


@FUZZ
@given(st.one_of(st.lists(NOISE, max_size=30).map(b"".join), st.text().map(str.encode)))
def test_text_of_other_processes(raw: bytes) -> None:
    INPUTS["tried"] += 1
    for text in (raw, raw.decode("utf-8", "surrogateescape")):
        assert is_clean(clean(text))
        assert is_clean(clean(clean(text)))


@pytest.mark.parametrize("piece", HOSTILE, ids=lambda piece: repr(piece[:12]))
def test_megabytes_of_hostile_text_become_a_bounded_line(
    piece: bytes, place: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = piece * (4_000_000 // len(piece))
    place.write("10/cmdline", data)
    place.write("10/environ", b"RANK=" + data.replace(b"\0", b"x"))
    reads: list[int] = []
    note_reads(monkeypatch, reads.append)

    assert is_clean(clean(data))
    words = procfs.read_cmdline(str(place), 10)
    found = procfs.read_environment(str(place), 10, frozenset((b"RANK",)))

    assert all(map(is_clean, (*words, *found.values())))
    assert sum(reads) <= procfs.CMDLINE_BYTES_LIMIT + procfs.ENVIRON_BYTES_LIMIT


def note_reads(monkeypatch: pytest.MonkeyPatch, note: Callable[[int], None]) -> None:
    """Record how many bytes each read has returned."""
    really = os.read

    def read(fd: int, size: int) -> bytes:
        data = really(fd, size)
        note(len(data))
        return data

    monkeypatch.setattr(os, "read", read)
