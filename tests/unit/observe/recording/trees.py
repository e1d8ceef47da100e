"""Small readings of a job for tests of recordings."""

from __future__ import annotations

from mpwatch.model.events import HookEvent, HookSlice
from mpwatch.model.host import HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample, ThreadSample, TreeSample

MAIN = ProcessId(100, 7)
WORKER = ProcessId(101, 8)
START_S = 1000.0


def sample(process: ProcessId, at_s: float, cpu_ticks: int = 5) -> ProcSample:
    return ProcSample(
        process=process,
        at_s=at_s,
        parent_pid=1 if process == MAIN else MAIN.pid,
        name="python",
        cmdline=("python", "train.py"),
        state="S",
        role="main" if process == MAIN else "loader-worker",
        cpu_ticks=cpu_ticks,
        threads=(ThreadSample(process.pid, "MainThread", "S", cpu_ticks),),
    )


def tree(
    at_s: float, *, cpu_ticks: int = 5, processes: tuple[ProcessId, ...] = (MAIN, WORKER)
) -> TreeSample:
    return TreeSample(
        at_s=at_s,
        wall_s=at_s + 1e9,
        root=MAIN,
        host=HostSample(at_s, at_s + 1e9, "node7", "6.18"),
        processes=tuple(sample(process, at_s, cpu_ticks) for process in processes),
    )


def events(at_s: float, count: int = 2) -> HookSlice:
    at_ns = int(at_s * 1e9)
    records = tuple(
        HookEvent(n, at_ns, 1, WORKER.pid, 1000, 4096, 77 + n, 1, 0, 0) for n in range(count)
    )
    return HookSlice(WORKER, at_s, records, lost=0)
