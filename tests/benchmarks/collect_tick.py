"""What one reading of a DataLoader job costs, against psutil reading the same attributes.

    python -m tests.benchmarks.collect_tick [WORKERS] [TICKS]

Cpu time of the reading thread, median over the ticks, psutil and we in turn in one run: the ratio
means something on any machine. psutil reads less: it has no wait channels, system calls,
segments, limits of control groups, nor roles. Nothing is asserted.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil

from mpwatch.collect.job.reader import ReadRequest, TreeCollector, find_jobs
from mpwatch.collect.process.identify import identify

PROGRAM = Path(__file__).parents[1] / "programs" / "loader.py"
CHEAP = [
    "pid", "ppid", "name", "cmdline", "status", "cpu_times", "memory_info", "num_threads",
    "num_fds", "uids", "create_time", "num_ctx_switches", "io_counters", "nice", "threads",
]  # fmt: skip
FULL = [
    *CHEAP,
    "exe",
    "environ",
    "memory_full_info",
    "memory_maps",
    "open_files",
    "net_connections",
]


def cpu_ms(read: Callable[[], object]) -> float:
    """Cpu milliseconds of this thread."""
    before_s = time.thread_time()
    read()
    return (time.thread_time() - before_s) * 1000


def by_psutil(pid: int, attributes: list[str]) -> list[dict[str, object]]:
    """Read the tree by psutil."""
    root = psutil.Process(pid)
    return [each.as_dict(attributes) for each in (root, *root.children(recursive=True))]


def line(name: str, ours: list[float], theirs: list[float]) -> None:
    """Print one comparison."""
    mine, other = median(ours), median(theirs)
    print(f"{name:<24}{mine:8.1f} ms{other:10.1f} ms{mine / other:10.2f}")


def main() -> None:
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    ticks = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        try:
            measure(program.pid, ticks)
        finally:
            program.kill()


def measure(pid: int, ticks: int) -> None:
    """Compare the readings of a running job by mpwatch and by psutil."""
    tree = TreeCollector(identify(pid))
    first = cpu_ms(lambda: tree.collect(ReadRequest()))
    ours, theirs, idle = [], [], []
    for _ in range(ticks):
        time.sleep(1.0)
        ours.append(cpu_ms(lambda: tree.collect(ReadRequest())))
        idle.append(cpu_ms(tree.started))
        theirs.append(cpu_ms(lambda: by_psutil(pid, CHEAP)))
    full = [cpu_ms(lambda: tree.collect(ReadRequest.everything())) for _ in range(3)]
    full_theirs = [cpu_ms(lambda: by_psutil(pid, FULL)) for _ in range(3)]
    jobs = [cpu_ms(find_jobs) for _ in range(3)]
    print(f"{'':<24}{'mpwatch':>11}{'psutil':>13}{'ratio':>10}")
    line("tick of a dashboard", ours, theirs)
    line("everything, for a dump", full, full_theirs)
    print(f"{'first tick':<24}{first:8.1f} ms")
    print(f"{'births':<24}{median(idle):8.2f} ms")
    print(f"{'find_jobs':<24}{median(jobs):8.1f} ms for {len(psutil.pids())} processes")


if __name__ == "__main__":
    main()
