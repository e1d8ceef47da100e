"""What stands around the processes of jobs made up for tests of the screens."""

from __future__ import annotations

from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import CgroupSample, HostSample, RoomSample
from mpwatch.model.ids import SegmentId
from mpwatch.model.snapshot import Flow, LogEntry, Segment
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph, WaitLink
from tests.tui.cast import GIB, MAIN, MIB, NOW_S, WALL_S, worker_id


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
        shm=RoomSample("/dev/shm", 24 * GIB, 24 * GIB - shm_used, 1_000_000, 999_700),
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
        LogEntry(1, NOW_S - 600, WALL_S - 600, "born", worker_id(0), "fork from main"),
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
