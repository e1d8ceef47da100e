"""Jobs made up for tests of the screens, and a source without threads that delivers them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mpwatch.model.account import Account
from mpwatch.model.samples import Ended, GpuProcessSample, GpuSample
from mpwatch.model.snapshot import GpuUse, Hook, Loader, OwnCost, SharedCache, Snapshot
from mpwatch.model.waits import WaitGraph
from mpwatch.observe.sources.source import Command, Deliver
from tests.builders.screen_job import (
    GIB,
    MAIN,
    MIB,
    NOW_S,
    WALL_S,
    fd_finding,
    flows,
    host,
    log,
    main_process,
    segments,
    slow_worker,
    straggler_finding,
    tracker,
    waits,
    worker,
    worker_id,
)


class ScriptedSource:
    """Delivers the snapshots of a test in the test's own thread, and records commands."""

    def __init__(
        self, *snapshots: Snapshot, is_live: bool = True, refuses: str | None = None
    ) -> None:
        self.is_live = is_live
        self.asked: list[Command] = []
        self.is_stopped = False
        self._first = snapshots
        self._refuses = refuses
        self._deliver: Deliver | None = None

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        for snapshot in self._first:
            deliver(snapshot)

    def stop(self) -> None:
        self._deliver = None
        self.is_stopped = True

    def push(self, snapshot: Snapshot) -> None:
        assert self._deliver is not None, "the source was not started"
        self._deliver(snapshot)

    def ask(self, command: Command) -> str | None:
        self.asked.append(command)
        return self._refuses

    def asked_for(self, kind: type[Command]) -> list[Command]:
        """The commands of one kind that were asked."""
        return [command for command in self.asked if isinstance(command, kind)]


def loader_job() -> Snapshot:
    """A training with four loader workers that runs out of descriptors."""
    processes = (
        main_process(),
        *(worker(n) for n in range(3)),
        slow_worker(),
        tracker(),
    )
    return Snapshot(
        at_s=NOW_S,
        wall_s=WALL_S,
        root=MAIN,
        host=host(),
        processes=processes,
        segments=segments(),
        flows=flows(),
        loaders=(
            Loader(
                MAIN,
                1,
                workers=4,
                prefetch=2,
                next_task=417,
                outstanding=8,
                parked=3,
                owner_worker=3,
                wait_share=0.71,
            ),
        ),
        waits=waits(),
        findings=(fd_finding(), straggler_finding()),
        log=log(),
        own=OwnCost(0.6, 92 * MIB, 40_000.0),
        problems=("GPUs are not shown: there is no libnvidia-ml.so.1.",),
    )


def healthy_job() -> Snapshot:
    """The same training without findings."""
    job = loader_job()
    main = replace(job.processes[0], shared_cache=SharedCache(12, 1024, 0))
    return replace(
        job,
        findings=(),
        waits=WaitGraph(),
        processes=(main, *job.processes[1:]),
        account=watched_for(60.0),
    )


def watched_for(seconds: float) -> Account:
    """The account of a job that was watched for so long, without what its processes did."""
    return Account(MAIN, NOW_S - seconds, NOW_S, int(seconds))


def gpu_job() -> Snapshot:
    """The training on a GPU that a process of another job uses as well."""
    job = loader_job()
    users = tuple(
        GpuProcessSample(pid, memory)
        for pid, memory in ((MAIN.pid, 31 * GIB), (41829, GIB), (77, GIB))
    )
    gpu = GpuSample(0, "H100", "GPU-1", 33 * GIB, 80 * GIB, 96.0, 61.0, 512.0, users)
    uses = (GpuUse(0, 31 * GIB, 24 * GIB, 29 * GIB, read_at_s=NOW_S - 12),)
    visible = replace(job.processes[0].sample, environment={"CUDA_VISIBLE_DEVICES": "2,3"})
    main = replace(job.processes[0], gpus=uses, sample=visible)
    found = (
        replace(p, threads=tuple(replace(t, has_gil=t.state == "R") for t in p.threads))
        for p in (main, *job.processes[1:])
    )
    return replace(job, processes=tuple(found), gpus=(gpu,), problems=())


def crowd(count: int, *, tick: int = 0, changed: Sequence[int] = ()) -> Snapshot:
    """A main process with very many workers; some of them differ from tick to tick."""
    moving = set(changed)
    workers = tuple(
        worker(n, cpu=float(tick % 90 + 1) if n in moving else 2.0) for n in range(count - 1)
    )
    return replace(
        loader_job(),
        at_s=NOW_S + tick,
        processes=(main_process(), *workers),
        segments=(),
        flows=(),
        waits=WaitGraph(),
        findings=(),
    )


def ended_job() -> Snapshot:
    """The training after main was killed by a full /dev/shm and its workers followed."""
    job = loader_job()
    ends = {
        MAIN: Ended(MAIN, NOW_S - 3, signal=7),
        worker_id(3): Ended(worker_id(3), NOW_S - 2, exit_code=1),
    }
    gone = tuple(
        replace(p, ended=ends.get(p.process, Ended(p.process, NOW_S - 2, exit_code=0)))
        for p in job.processes
    )
    return replace(job, processes=gone, mode="ended", findings=(), waits=WaitGraph())


def without_hook() -> Snapshot:
    """The training as it is seen from outside only."""
    job = loader_job()
    bare = tuple(
        replace(p, hook=Hook("absent", "--no-hook"), loader=None, threads=()) for p in job.processes
    )
    return replace(
        job,
        processes=bare,
        account=watched_for(60.0),
        flows=(),
        loaders=(),
        segments=(),
        findings=(),
        waits=WaitGraph(),
        log=(),
    )
