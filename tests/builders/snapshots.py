"""Snapshots and histories that contain just what a rule reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from mpwatch.describe.error_messages import tags_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import advanced
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.engine import RULES
from mpwatch.model.account import Account
from mpwatch.model.findings import Finding
from mpwatch.model.history import History, HostMetric, Point, ProcessMetric
from mpwatch.model.host import CgroupSample, FilesKey, FileSystemSample, HostSample
from mpwatch.model.ids import ProcessId, Role, SegmentId, SegmentUse
from mpwatch.model.samples import (
    Ended,
    FdKind,
    FdLink,
    FdSample,
    Frame,
    MapSample,
    MemorySample,
    ProcSample,
    ThreadSample,
    WaitedOn,
)
from mpwatch.model.snapshot import Hook, LogEntry, Process, Segment, Snapshot, Thread

NOW_S = 1000.0
WALL_S = 1_700_000_000.0
MAIN = 100
MIB = 1 << 20
OWN_FILES = ("train.py", "data.py", "collate.py")  # of the user; any other file is a library's


def pid(number: int) -> ProcessId:
    return ProcessId(number, 5000 + number)


def process(
    number: int,
    role: Role = "loader-worker",
    *,
    parent: int | None = MAIN,
    original_parent: int | None = None,
    label: str | None = None,
    threads: Sequence[Thread] = (),
    ended: Ended | None = None,
    hook: Hook | None = None,
    more: Mapping[str, Any] | None = None,
    **sample: Any,
) -> Process:
    """A process; keywords are fields of its sample, `more` are fields of the process."""
    is_top = role == "main" and parent == MAIN
    parent_id = None if parent is None or is_top else pid(parent)
    taken = {
        "is_python": True,
        "state": "S",
        "name": "python",
        "born_wall_s": WALL_S - 600,
        "threads": tuple(ThreadSample(t.tid, t.name, t.state, 0) for t in threads) or None,
        **sample,
    }
    return Process(
        process=pid(number),
        sample=ProcSample(
            process=pid(number),
            at_s=NOW_S,
            parent_pid=parent_id.pid if parent_id is not None else 1,
            cmdline=taken.pop("cmdline", ("python", "train.py")),
            role=role,
            **taken,
        ),
        parent=parent_id,
        original_parent=pid(original_parent) if original_parent is not None else parent_id,
        role=role,
        label=label or ("main" if role == "main" else f"{role} {number}"),
        threads=tuple(threads),
        ended=ended,
        hook=hook or Hook(),
        **(more or {}),
    )


def main(number: int = MAIN, **keywords: Any) -> Process:
    """The root of a job."""
    return process(number, "main", **keywords)


def snapshot_of(*processes: Process, at_s: float = NOW_S, **keywords: Any) -> Snapshot:
    """A snapshot of a job; keywords that name fields of the host, such as `shm`, are set there."""
    host_fields = set(HostSample.__struct_fields__)
    host = {name: keywords.pop(name) for name in list(keywords) if name in host_fields}
    return Snapshot(
        at_s=at_s,
        wall_s=WALL_S + at_s - NOW_S,
        root=keywords.pop("root", processes[0].process if processes else pid(MAIN)),
        host=HostSample(at_s=at_s, wall_s=WALL_S, hostname="h", kernel="6.18", **host),
        processes=processes,
        errors=tuple(entry for entry in keywords.get("log", ()) if entry.tags),
        **keywords,
    )


def fds(
    used: int, limit: int | None = 1024, links: Sequence[FdLink] | None = None, **kinds: int
) -> FdSample:
    by_kind: dict[FdKind, int] = dict(kinds)  # type: ignore[assignment]
    return FdSample(
        used, limit, 4096, by_kind or None, None if links is None else tuple(links), NOW_S
    )


def pipe(fd: int, inode: int, is_writable: bool) -> FdLink:
    return FdLink(fd, "pipe", f"pipe:[{inode}]", inode, is_writable)


def socket(fd: int, inode: int, peer: int | None, address: str = "unix") -> FdLink:
    return FdLink(fd, "socket", f"socket:[{inode}]", inode, None, peer=peer, address=address)


def maps(
    used: int, limit: int | None = 65_530, torch: int = 0, libraries: Sequence[str] = ()
) -> MapSample:
    return MapSample(used, limit, torch, tuple(libraries), NOW_S)


def memory(**fields: int) -> MemorySample:
    return MemorySample(**fields, read_at_s=NOW_S)


def uses(count: int, creator: int, first_inode: int = 1) -> tuple[SegmentUse, ...]:
    """Torch segments as one process holds them."""
    return tuple(
        SegmentUse(
            SegmentId(9, inode),
            f"/dev/shm/torch_{creator}_1_{inode}",
            "torch",
            False,
            creator,
            (inode,),
            ((4096, 8192),),
            4096,
            4096,
        )
        for inode in range(first_inode, first_inode + count)
    )


def segment(inode: int, creator_pid: int | None = None, **fields: Any) -> Segment:
    taken = {
        "path": f"/dev/shm/torch_{creator_pid}_1_{inode} (deleted)",
        "kind": "torch",
        "is_linked": False,
        "creator": None if creator_pid is None else pid(creator_pid),
        "mappers": (),
        "holders": (),
        "size_bytes": 4096,
        "allocated_bytes": 4096,
        "changed_wall_s": WALL_S - fields.pop("age_s", 10.0),
        **fields,
    }
    return Segment(SegmentId(9, inode), creator_pid=creator_pid, **taken)


def space(total: int, free: int, inodes: int | None = None, free_inodes: int | None = None) -> Any:
    return FileSystemSample("/dev/shm", total, free, inodes, free_inodes)


def cgroup(**fields: Any) -> CgroupSample:
    return CgroupSample(version=2, path="/job", **fields)


def frames(*calls: str) -> tuple[Frame, ...]:
    """Frames innermost first, each written as `file.py:function` or `file.py:function:line`."""
    made = []
    for call in calls:
        file, function, *line = call.split(":")
        folder = "/home/me/" if file in OWN_FILES else "/usr/lib/python3/"
        path = file if file.startswith("<") else f"{folder}{file}"
        made.append(Frame(function, path, int(line[0]) if line else 1))
    return tuple(made)


def thread(
    tid: int,
    *calls: str,
    name: str = "python",
    state: str = "S",
    waits: WaitedOn | None = None,
    still_s: float | None = 60.0,
    **fields: Any,
) -> Thread:
    return Thread(
        tid,
        name,
        state,
        waits_on=waits,
        stack=frames(*calls),
        stack_source="py-spy" if calls else None,
        stack_at_s=NOW_S if calls else None,
        still_s=still_s,
        **fields,
    )


IDLE_WORKER = (
    "selectors.py:select",
    "multiprocessing/connection.py:wait",
    "multiprocessing/connection.py:poll",
    "multiprocessing/queues.py:get",
    "torch/utils/data/_utils/worker.py:_worker_loop",
    "multiprocessing/process.py:run",
    "multiprocessing/process.py:_bootstrap",
)
FETCHING_WORKER = (
    "data.py:decode:31",
    "data.py:__getitem__:12",
    "torch/utils/data/_utils/fetch.py:fetch",
    "torch/utils/data/_utils/worker.py:_worker_loop",
    "multiprocessing/process.py:run",
    "multiprocessing/process.py:_bootstrap",
)
WAITING_MAIN = (
    "selectors.py:select",
    "multiprocessing/connection.py:wait",
    "multiprocessing/connection.py:poll",
    "multiprocessing/queues.py:get",
    "torch/utils/data/dataloader.py:_try_get_data",
    "torch/utils/data/dataloader.py:_get_data",
    "torch/utils/data/dataloader.py:_next_data",
    "torch/utils/data/dataloader.py:__next__",
    "train.py:<module>:57",
)
IDLE_FEEDER = (
    "threading.py:wait",
    "multiprocessing/queues.py:_feed",
    "threading.py:run",
    "threading.py:_bootstrap_inner",
    "threading.py:_bootstrap",
)


def line(
    end: float, per_s: float = 0.0, seconds: float = 30.0, step_s: float = 1.0, at_s: float = NOW_S
) -> tuple[Point, ...]:
    """A straight series that ends now at a value."""
    count = round(seconds / step_s)
    return tuple(
        Point(at_s - (count - i) * step_s, end - (count - i) * step_s * per_s)
        for i in range(count + 1)
    )


def history(
    processes: Mapping[tuple[int, ProcessMetric], Sequence[Point]] | None = None,
    host: Mapping[HostMetric, Sequence[Point]] | None = None,
    started_at_s: float = NOW_S - 300,
    files: Mapping[FilesKey, Sequence[Point]] | None = None,
) -> History:
    taken = {(pid(number), metric): s for (number, metric), s in (processes or {}).items()}
    return History(taken, host or {}, started_at_s, files or {})


NO_HISTORY = history()


def accounted(*snapshots: Snapshot) -> Snapshot:
    """The last snapshot, with the account of time of all."""
    spent = Account()
    for each in snapshots:
        index = Index(each, NO_HISTORY)
        spent = advanced(spent, index, wait_graph(index))
    return replace(snapshots[-1], account=spent)


def ticked(process: Process, ticks: Mapping[int, int]) -> Process:
    """The process with these cpu times of its threads, in ticks."""
    threads = tuple(
        ThreadSample(each.tid, each.name, each.state, ticks.get(each.tid, 0))
        for each in process.threads
    )
    return replace(process, sample=replace(process.sample, threads=threads))


def exited(number: int, *, at_s: float = NOW_S - 5, **how: Any) -> Ended:
    return Ended(pid(number), at_s, **how)


def log(kind: str, number: int | None = None, words: str = "", **details: object) -> LogEntry:
    process = None if number is None else pid(number)
    tags = tags_of(kind, words, details)
    return LogEntry(1, NOW_S - 1, WALL_S - 1, kind, process, words, details, tags)


Check = Callable[[Index], Iterator[Finding]]


def found(check: Check, snapshot: Snapshot, past: History = NO_HISTORY) -> list[Finding]:
    """The findings of a rule, which are the same after any other rule and however often it runs."""
    findings = list(check(Index(snapshot, past)))
    index = Index(snapshot, past)
    for rule in RULES:
        list(rule.check(index))
    assert list(check(index)) == findings
    for listener in _listeners:
        listener(snapshot, past)
    return findings


_listeners: list[Callable[[Snapshot, History], None]] = []


@contextmanager
def checked_snapshots() -> Iterator[list[tuple[Snapshot, History]]]:
    """Yields a list that receives each snapshot and history that `found` checks in this context."""
    seen: list[tuple[Snapshot, History]] = []

    def note(snapshot: Snapshot, past: History) -> None:
        seen.append((snapshot, past))

    _listeners.append(note)
    try:
        yield seen
    finally:
        _listeners.remove(note)


def only(check: Check, snapshot: Snapshot, past: History = NO_HISTORY) -> Finding:
    findings = found(check, snapshot, past)
    assert len(findings) == 1, findings
    return findings[0]


def with_threads(process: Process, threads: Iterable[Thread]) -> Process:
    return replace(process, threads=tuple(threads))


def cpu(**loads: float) -> History:
    """CPU use over the last 30 s: `cpu(main=10, w200=95)`."""
    return history(
        {
            (MAIN if name == "main" else int(name[1:]), "cpu_percent"): line(load)
            for name, load in loads.items()
        }
    )


def dead_worker(at_s: float = NOW_S - 5, role: str = "loader-worker", **how: Any) -> Process:
    return process(
        200,
        role,  # type: ignore[arg-type]
        ended=Ended(pid(200), at_s, **how),
        maps=maps(900, libraries=("libcv2.so",)),
        threads=[thread(200, "data.py:decode:31")],
        more={"private_bytes": 412 * MIB},
    )


def dead_main(
    at_s: float = NOW_S - 4, threads: Any = (), hook: Hook | None = None, **how: Any
) -> Process:
    return main(ended=Ended(pid(MAIN), at_s, **how), threads=threads, hook=hook)
