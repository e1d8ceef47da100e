"""Processes, hosts, findings and events of jobs made up for tests of the screens."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import CgroupSample, FileSystemSample, HostSample
from mpwatch.model.ids import ProcessId, Role, SegmentId
from mpwatch.model.samples import (
    FdKind,
    FdLink,
    FdSample,
    Frame,
    MapSample,
    MemorySample,
    ProcSample,
    WaitedOn,
)
from mpwatch.model.snapshot import (
    Flow,
    Hook,
    LogEntry,
    Process,
    Segment,
    Thread,
    Trends,
    WorkerLoad,
)
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph, WaitLink

NOW_S = 5000.0
WALL_S = 1_750_000_000.0
MIB = 1 << 20
GIB = 1 << 30
MAIN = ProcessId(41823, 900)


def worker_id(number: int) -> ProcessId:
    return ProcessId(41826 + number, 910 + number)


def frames(*places: tuple[str, str, int]) -> tuple[Frame, ...]:
    return tuple(Frame(*place) for place in places)


# No machine has these files: where it had, pages would show their lines.
WORKER_STACK = frames(
    ("decode", "/home/ada/train/data.py", 31),
    ("__getitem__", "/home/ada/train/data.py", 22),
    ("fetch", "/opt/py/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 54),
    ("_worker_loop", "/opt/py/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 349),
    ("run", "/opt/py/lib/python3.11/multiprocessing/process.py", 108),
)
IDLE_STACK = frames(
    ("wait", "/opt/py/lib/python3.11/multiprocessing/connection.py", 931),
    ("get", "/opt/py/lib/python3.11/multiprocessing/queues.py", 113),
    ("_worker_loop", "/opt/py/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 310),
)
MAIN_STACK = frames(
    ("wait", "/opt/py/lib/python3.11/multiprocessing/connection.py", 931),
    ("_try_get_data", "/opt/py/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1291),
    ("__next__", "/opt/py/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 734),
    ("epoch", "/home/ada/train/train.py", 57),
    ("<module>", "/home/ada/train/train.py", 80),
)


class ProcessSpec(Struct, frozen=True):
    """The properties of a process; by default an idle loader worker."""

    identity: ProcessId
    label: str
    role: Role
    parent: ProcessId | None = MAIN
    state: str = "S"
    cpu: float | None = 2.0
    private: int = 88 * MIB
    shm: int | None = 8 * MIB
    fds: int = 27
    maps: int = 372
    doing: str = "waits for work"
    stack: tuple[Frame, ...] = IDLE_STACK
    hook: Hook = field(
        default_factory=lambda: Hook("ready", events=4180, torch="2.13.0", python="3.11.7")
    )
    load: WorkerLoad | None = None
    trends: Trends = field(
        default_factory=lambda: Trends((3, 2, 2, 3), (88e6,) * 4, (27,) * 4, (372,) * 4, (8e6,) * 4)
    )
    threads: tuple[Thread, ...] = ()
    cmdline: tuple[str, ...] = ("python", "train.py", "--lr", "0.1")
    by_kind: dict[FdKind, int] | None = None
    links: tuple[FdLink, ...] | None = None
    number: int | None = None


def process(part: ProcessSpec) -> Process:
    return Process(
        process=part.identity,
        sample=sample(part),
        parent=part.parent,
        role=part.role,
        label=part.label,
        depth=0 if part.parent is None else 1,
        cpu_percent=part.cpu,
        private_bytes=part.private,
        shm_bytes=part.shm,
        threads=(main_thread(part), *part.threads),
        hook=part.hook,
        start_method="fork",
        sharing_strategy="file_descriptor",
        loader=part.load,
        doing=part.doing,
        trends=part.trends,
    )


def sample(part: ProcessSpec) -> ProcSample:
    return ProcSample(
        process=part.identity,
        at_s=NOW_S,
        parent_pid=part.parent.pid if part.parent else 1,
        name="python",
        cmdline=part.cmdline,
        state=part.state,
        role=part.role,
        worker_id=part.number,
        is_python=True,
        python_version="3.11",
        thread_count=3,
        nice=0,
        fds=descriptors(part),
        maps=MapSample(part.maps, 65530, 4),
        memory=MemorySample(
            rss_bytes=part.private + 120 * MIB,
            pss_bytes=part.private + 30 * MIB,
            private_clean_bytes=0,
            private_dirty_bytes=part.private,
            read_at_s=NOW_S - 3,
        ),
        born_wall_s=WALL_S - 600,
        environment={"OMP_NUM_THREADS": "1"},
        start_method="fork" if part.parent else None,
    )


def descriptors(part: ProcessSpec) -> FdSample:
    by_kind = part.by_kind or {
        "torch": 4,
        "file": 3,
        "pipe": 14,
        "socket": 4,
        "other": part.fds - 25,
    }
    links = part.links or (FdLink(3, "pipe", "pipe:[18174]", 18174, False),) * 14
    return FdSample(part.fds, 1024, 1_048_576, by_kind, links, NOW_S - 2)


def main_thread(part: ProcessSpec) -> Thread:
    sleeps = part.state == "S"
    return Thread(
        part.identity.pid,
        "pt_data_worker" if part.role == "loader-worker" else "python",
        part.state,
        wchan="poll_schedule_timeout" if sleeps else None,
        cpu_percent=part.cpu,
        waits_on=WaitedOn("pipe-read", "read", ("pipe:[18174]",)) if sleeps else None,
        stack=part.stack,
        stack_source="hook",
        stack_at_s=NOW_S - 0.4,
        still_s=1.2 if sleeps else None,
    )


def loader_worker(number: int) -> ProcessSpec:
    load = WorkerLoad(
        number,
        1,
        fetched=400 + number,
        fetch_p50_s=0.096,
        fetch_p99_s=0.12,
        recent_s=(0.09, 0.1, 0.095, 0.1, 0.09, 0.13, 0.1, 0.09) * 4,
        task_since_s=1.2,
        queued=0,
        parked=1,
    )
    return ProcessSpec(
        worker_id(number), f"worker {number}", "loader-worker", load=load, number=number
    )


def worker(number: int, *, cpu: float = 2.0) -> Process:
    return process(replace(loader_worker(number), cpu=cpu))


def main_process() -> Process:
    torch_links = tuple(
        FdLink(30 + n, "torch", f"/dev/shm/torch_{41826 + n % 4}_3171_{n} (deleted)", n, True)
        for n in range(598)
    )
    pipes = tuple(FdLink(700 + n, "pipe", f"pipe:[{18174 + n}]", n, False) for n in range(20))
    return process(
        ProcessSpec(
            MAIN,
            "main",
            "main",
            parent=None,
            cpu=31.0,
            private=int(1.2 * GIB),
            shm=84 * MIB,
            fds=642,
            maps=1100,
            doing="waits for batch 417 from worker 3",
            stack=MAIN_STACK,
            by_kind={"torch": 598, "file": 5, "pipe": 20, "socket": 11, "device": 4, "other": 4},
            links=(*torch_links, *pipes),
            trends=Trends(
                (20, 31, 44, 28, 35, 31, 20, 31),
                tuple(1.1e9 + n * 2e6 for n in range(8)),
                (480, 500, 525, 550, 570, 595, 618, 642),
                (1000.0,) * 8,
                (8.0e7,) * 8,
            ),
            threads=(
                Thread(
                    41824,
                    "QueueFeederThread",
                    "S",
                    "futex_do_wait",
                    0.0,
                    WaitedOn("futex", "futex", ("condition",)),
                    still_s=84.0,
                ),
            ),
        )
    )


def slow_worker() -> Process:
    load = WorkerLoad(
        3,
        1,
        fetched=101,
        fetch_p50_s=0.412,
        fetch_p99_s=3.1,
        recent_s=(0.5, 0.8, 0.5, 0.6, 0.4, 0.9, 0.5, 0.45) * 4,
        task=417,
        task_since_s=2.8,
        index="13342",
        queued=2,
        parked=0,
    )
    part = replace(
        loader_worker(3),
        state="R",
        cpu=98.0,
        private=412 * MIB,
        maps=380,
        doing="data.py:31 decode -> PIL/Image.py:804",
        stack=WORKER_STACK,
        load=load,
        trends=Trends(
            (98, 97, 99, 98), (400e6, 404e6, 408e6, 412e6), (27,) * 4, (380,) * 4, (8e6,) * 4
        ),
    )
    return process(part)


def tracker() -> Process:
    return process(
        ProcessSpec(
            ProcessId(41840, 940),
            "resource-tracker",
            "resource-tracker",
            cpu=0.0,
            private=9 * MIB,
            shm=None,
            fds=5,
            maps=61,
            doing="reads its pipe",
            hook=Hook("absent"),
            cmdline=("python", "-c", "from multiprocessing.resource_tracker import main;main(27)"),
            by_kind={"pipe": 1, "device": 3, "file": 1},
        )
    )


def host(*, shm_used: int = 6 * GIB) -> HostSample:
    return HostSample(
        NOW_S,
        WALL_S,
        "node7",
        "6.18.5",
        cpu_count=16,
        usable_cpus=8,
        load_1m=3.1,
        runnable=11,
        memory_total_bytes=64 * GIB,
        memory_available_bytes=31 * GIB,
        shm=FileSystemSample("/dev/shm", 24 * GIB, 24 * GIB - shm_used, 1_000_000, 999_700),
        cgroup=CgroupSample(2, "/job", memory_bytes=21 * GIB, memory_limit_bytes=24 * GIB),
        max_map_count=65530,
    )


def fd_finding() -> Finding:
    return Finding(
        rule="fd-exhaustion-receiver",
        severity=Severity.CRITICAL,
        summary="main reaches its limit of 1024 fds in 38 s: "
        "+24/s, one per tensor received and kept",
        evidence=(
            "642 of 1024 descriptors in use, 598 of them torch segments",
            "+24.1 a second over the last 40 s, never falling",
            "kept by train.py:57 history.append(batch), 842 live",
        ),
        cause="Every tensor received through the file_descriptor strategy holds one descriptor "
        "until it is freed, and the program keeps them all.",
        advice="Keep copies (batch.clone()) instead of the received tensors, raise ulimit -n to "
        "gain time, or use the file_system strategy, which leaks names if the program is killed.",
        process=MAIN,
        eta_s=38.0,
        first_seen_s=NOW_S - 40,
    )


def straggler_finding() -> Finding:
    return Finding(
        rule="straggler-worker",
        severity=Severity.WARNING,
        summary="worker 3 takes 412 ms a batch, the others 96 ms; "
        "3 finished batches wait behind it",
        evidence=("p50 412 ms against 96 ms", "3 batches parked behind batch 417"),
        cause="One worker reads from slower storage or decodes larger samples than the others.",
        advice="Shuffle large samples over workers, or in_order=False where order does not matter.",
        process=worker_id(3),
        first_seen_s=NOW_S - 90,
    )


def segments() -> tuple[Segment, ...]:
    return tuple(segment(number, n) for number in range(4) for n in range(6))


def segment(number: int, n: int) -> Segment:
    maker = worker_id(number)
    return Segment(
        SegmentId(25, 1000 + number * 10 + n),
        f"/dev/shm/torch_{maker.pid}_3171_{n}",
        "torch",
        is_linked=False,
        creator_pid=maker.pid,
        creator=maker,
        mappers=(MAIN, maker),
        holders=(),
        size_bytes=4 * MIB,
        allocated_bytes=4 * MIB,
        changed_wall_s=WALL_S - 4.0 - n,
        call_site="collate.py:44 torch.stack",
    )


def flows() -> tuple[Flow, ...]:
    rates = (31.0, 30.0, 30.0, 7.0)
    return tuple(
        Flow(
            worker_id(n),
            MAIN,
            tensors=int(rate * 60),
            bytes=int(rate * 60 * 0.6 * MIB),
            copied_bytes=int(rate * 60 * 0.6 * MIB),
            latency_p50_s=0.0009,
            latency_p99_s=0.004,
            tensors_per_s=rate,
            bytes_per_s=rate * 0.6 * MIB,
            in_flight=2,
        )
        for n, rate in enumerate(rates)
    )


def waits() -> WaitGraph:
    chain = WaitChain(
        (
            WaitLink(MAIN, 41823, "main", "waits for batch 417", 84.0),
            WaitLink(
                worker_id(3), 41829, "worker 3", "owns it, waits for a lock at data.py:12", 84.0
            ),
        ),
        "dead-end",
        "Nobody will ever release this lock: its holder was a thread that the fork left behind.",
    )
    edges = (
        WaitEdge(MAIN, 41823, "pipe-read", "batch 417", (worker_id(3),), 84.0, "the hook"),
        *(
            WaitEdge(worker_id(n), worker_id(n).pid, "pipe-read", "work", (MAIN,), 1.2, "", True)
            for n in range(3)
        ),
    )
    return WaitGraph(edges, (chain,))


def log() -> tuple[LogEntry, ...]:
    return (
        LogEntry(1, NOW_S - 600, WALL_S - 600, "started", worker_id(0), "fork from main"),
        LogEntry(2, NOW_S - 599, WALL_S - 599, "hook", worker_id(0), "hook ready, torch 2.13.0"),
        LogEntry(
            3,
            NOW_S - 40,
            WALL_S - 40,
            "finding",
            MAIN,
            "critical: fd-exhaustion-receiver",
            {"evidence": ("642 of 1024 descriptors in use",)},
        ),
    )
