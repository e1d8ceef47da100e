"""Made-up jobs for tests of nodes: ranks that compute, or that wait in a collective."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import FileSystemSample, HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import (
    Ended,
    FdSample,
    Frame,
    MapSample,
    MemorySample,
    ProcSample,
    WaitedOn,
)
from mpwatch.model.snapshot import Process, Snapshot, Thread

ALL_REDUCE = (
    Frame(
        "all_reduce", "/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2501
    ),
    Frame("train", "/home/ada/train.py", 48),
)
SAVE = (Frame("save", "/home/ada/train.py", 91),)


def rank(
    number: int,
    *,
    at_s: float = 100.0,
    stack: tuple[Frame, ...] = (),
    still_s: float | None = None,
    doing: str = "computes",
    world_size: int = 64,
    ended: Ended | None = None,
    cpu_percent: float = 100.0,
) -> Process:
    """A rank; with `still_s` it has made no progress for that long."""
    process = ProcessId(1000 + number, 50)
    waits_on = None if still_s is None else WaitedOn("futex", "futex", ())
    thread = Thread(
        process.pid,
        "MainThread",
        "S" if still_s is not None else "R",
        waits_on=waits_on,
        stack=stack,
        stack_source="py-spy" if stack else None,
        stack_at_s=at_s if stack else None,
        still_s=still_s,
        waits_s=still_s,
    )
    environment = {
        "RANK": str(number),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "8",
    }
    sample = ProcSample(
        process=process,
        at_s=at_s,
        parent_pid=1,
        name="python",
        cmdline=("python", "train.py"),
        state=thread.state,
        role="rank",
        rank=number,
        is_python=True,
        python_version="3.11",
        fds=FdSample(60 + number, 1024, 1024),
        maps=MapSample(900, 65530),
        memory=MemorySample(rss_bytes=2 << 30),
        environment=environment,
    )
    return Process(
        process=process,
        sample=sample,
        parent=None,
        role="rank",
        label=f"rank {number}",
        cpu_percent=0.0 if still_s is not None else cpu_percent,
        threads=(thread,),
        doing=doing,
        ended=ended,
    )


def snapshot(
    processes: Sequence[Process],
    *,
    at_s: float = 100.0,
    findings: tuple[Finding, ...] = (),
    host: str = "node7",
) -> Snapshot:
    return Snapshot(
        at_s=at_s,
        wall_s=1_800_000_000.0 + at_s,
        root=processes[0].process,
        host=HostSample(
            at_s,
            1_800_000_000.0 + at_s,
            host,
            "6.1",
            shm=FileSystemSample("/dev/shm", 64 << 30, 32 << 30, None, None),
            max_map_count=65530,
        ),
        processes=tuple(processes),
        findings=findings,
    )


def finding(process: Process, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        rule="fd-exhaustion-receiver",
        severity=severity,
        summary=f"{process.label} will run out of descriptors",
        evidence=("1000 of 1024",),
        cause="c",
        advice="a",
        process=process.process,
        eta_s=42.0,
    )
