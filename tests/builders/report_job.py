"""A small job with content for every section of a report."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.model.account import Account, Activity, ProcessAccount, ThreadAccount
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import CgroupSample, FileSystemSample, HostSample
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import (
    Ended,
    FdSample,
    Frame,
    GpuProcessSample,
    GpuSample,
    MapSample,
    MemorySample,
    ProcSample,
    WaitedOn,
)
from mpwatch.model.snapshot import (
    Flow,
    GpuUse,
    Hook,
    Loader,
    Process,
    Segment,
    SharedCache,
    Snapshot,
    Thread,
    WorkerLoad,
)
from mpwatch.model.waits import WaitChain, WaitEdge, WaitGraph, WaitLink

MAIN = ProcessId(41823, 7001)
WORKER = ProcessId(41826, 7050)
DEAD = ProcessId(41827, 7051)

DECODE = (
    Frame("decode", "/home/ada/data.py", 31),
    Frame("_worker_loop", "/usr/lib/torch/utils/data/_utils/worker.py", 349),
    Frame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
    Frame("_launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71),
    Frame("<module>", "/home/ada/train.py", 12),
)


def host() -> HostSample:
    return HostSample(
        at_s=500.0,
        wall_s=1_800_000_000.0,
        hostname="node7",
        kernel="6.18.44",
        cpu_count=8,
        usable_cpus=4,
        load_1m=2.5,
        memory_total_bytes=64 << 30,
        memory_available_bytes=40 << 30,
        shm=FileSystemSample("/dev/shm", 64 << 20, 3 << 20, 1000, 900),
        cgroup=CgroupSample(2, "/job", memory_bytes=21 << 30, memory_limit_bytes=24 << 30),
        max_map_count=65530,
    )


def main() -> Process:
    sample = ProcSample(
        process=MAIN,
        at_s=500.0,
        parent_pid=900,
        name="python",
        cmdline=("python", "train.py", "--lr", "0.1"),
        state="S",
        role="main",
        python_version="3.11",
        thread_count=7,
        fds=FdSample(642, 1024, 524288, {"torch": 600, "pipe": 42}),
        maps=MapSample(1100, 65530, torch_count=600),
        memory=MemorySample(rss_bytes=2 << 30, pss_bytes=1 << 30),
        problems=("smaps_rollup: Permission denied",),
    )
    return Process(
        process=MAIN,
        sample=sample,
        parent=None,
        role="main",
        label="main",
        cpu_percent=31.0,
        private_bytes=1200 << 20,
        shm_bytes=84 << 20,
        threads=(Thread(41823, "MainThread", "S", wchan="futex_do_wait", cpu_percent=0.0),),
        hook=Hook("ready", events=9000, lost=3, torch="2.13.0", python="3.11.7"),
        start_method="fork",
        sharing_strategy="file_descriptor",
        shared_cache=SharedCache(600, 1024, 12),
        gpus=(GpuUse(0, 2 << 30, 1 << 30, 2 << 30),),
        doing="waits for batch 417 from worker 0",
    )


def worker(process: ProcessId = WORKER, number: int = 0, *, ended: Ended | None = None) -> Process:
    sample = ProcSample(
        process=process,
        at_s=500.0,
        parent_pid=MAIN.pid,
        name="pt_data_worker",
        cmdline=("python", "train.py", "--lr", "0.1"),
        state="R",
        role="loader-worker",
        worker_id=number,
    )
    thread = Thread(
        process.pid, "MainThread", "R", stack=DECODE, stack_source="py-spy", waits_on=_read()
    )
    return Process(
        process=process,
        sample=sample,
        parent=MAIN,
        role="loader-worker",
        label=f"worker {number}",
        depth=1,
        threads=(thread,),
        hook=Hook("silent", "no answer in 250 ms"),
        loader=WorkerLoad(number, fetched=208, fetch_p50_s=0.096, fetch_p99_s=0.12, task=417),
        doing=f"ended: {ended.words}" if ended else "data.py:31 decode",
        ended=ended,
    )


def finding() -> Finding:
    return Finding(
        rule="fd-exhaustion-receiver",
        severity=Severity.CRITICAL,
        summary="main reaches its limit of 1024 fds in 38 s",
        evidence=("642 of 1024 fds in use", "+24 fds a second, one per tensor received"),
        cause="Every tensor received and kept holds one descriptor of the receiver.",
        advice="Stop keeping received tensors: clone() what you keep, at the price of a copy.",
        process=MAIN,
        eta_s=38.0,
    )


def segment() -> Segment:
    return Segment(
        segment=SegmentId(0x1A, 77),
        path="/dev/shm/torch_41826_11_0",
        kind="torch",
        is_linked=False,
        creator_pid=WORKER.pid,
        creator=WORKER,
        mappers=(MAIN, WORKER),
        holders=(),
        size_bytes=1 << 20,
        allocated_bytes=1 << 20,
        changed_wall_s=1_800_000_000.0 - 4.0,
        call_site="collate.py:44",
    )


def waits() -> WaitGraph:
    links = (
        WaitLink(MAIN, 41823, "main", "waits for batch 417", 84.0),
        WaitLink(WORKER, 41826, "worker 0", "owns it and waits for a lock", 84.0),
    )
    edge = WaitEdge(MAIN, 41823, "pipe-read", "batch 417", (WORKER,), 84.0, "pipe:[18174]")
    return WaitGraph((edge,), (WaitChain(links, "dead-end", "Nobody will release this lock."),))


def job() -> Snapshot:
    flow = Flow(WORKER, MAIN, 842, 512 << 20, 512 << 20, 0.0009, 0.004, 31.0, 18.2e6, 2)
    gpu = GpuSample(0, "H100", "GPU-1", 31 << 30, 80 << 30, 55.0, 60.0, 350.0, _gpu_users())
    return Snapshot(
        at_s=500.0,
        wall_s=1_800_000_000.0,
        root=MAIN,
        host=host(),
        processes=(main(), worker(), worker(DEAD, 1, ended=Ended(DEAD, 499.0, signal=9))),
        segments=(segment(),),
        gpus=(gpu,),
        flows=(flow,),
        loaders=(Loader(MAIN, 5, 2, prefetch=2, next_task=417, owner_worker=0),),
        waits=waits(),
        findings=(finding(),),
        problems=("gpu: no NVML library",),
    )


def listed_job() -> Job:
    root = JobProcess(
        process=MAIN,
        parent_pid=900,
        role="main",
        name="python",
        cmdline=("python", "train.py"),
        state="S",
        uid=1000,
        rss_bytes=2 << 30,
        born_wall_s=1_800_000_000.0,
        has_torch=True,
        has_hook=True,
    )
    below = replace(
        root,
        process=WORKER,
        parent_pid=MAIN.pid,
        role="loader-worker",
        worker_id=3,
        has_hook=False,
        born_wall_s=None,
    )
    return Job(root, (root, below))


def _read() -> WaitedOn:
    return WaitedOn("pipe-read", "read", ("pipe:[18174]",))


def _gpu_users() -> tuple[GpuProcessSample, ...]:
    return (GpuProcessSample(MAIN.pid, 2 << 30),)


def account() -> Account:
    """Of half a minute in which main waited for batches of its worker."""
    batches = Activity("waiting", "batches", "batch", (WORKER,))
    thread = ThreadAccount(MAIN.pid, "MainThread", batches, 470.0, 0, 0)
    found = ProcessAccount(MAIN, 500.0, 60, (thread,), (0,))
    return Account(MAIN, 470.0, 500.0, 60, {MAIN: found})
