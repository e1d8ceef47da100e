"""What diagnosing one reading of a DataLoader job costs, against building the snapshot itself.

    python -m tests.benchmarks.diagnosis_cost [WORKERS] [TICKS] [--profile]

Cpu time of the diagnosing thread, median over the ticks: the waits, all rules, and the rest of
`Fold.snapshot`. The ratio means something on any machine. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.engine import Engine
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.state.fold import Fold

PROGRAM = Path(__file__).parents[1] / "programs" / "loader.py"
STARTING_TICKS = 4


class TimedEngine(Engine):
    """An engine that notes what each look costs, and what deriving the waits costs again."""

    def __init__(self) -> None:
        super().__init__()
        self.look_ms: list[float] = []
        self.waits_ms: list[float] = []
        self.beside_ms: list[float] = []

    def look(self, snapshot: Snapshot, history: History) -> tuple[Finding, ...]:
        began_s = time.thread_time()
        found = super().look(snapshot, history)
        looked_s = time.thread_time()
        # A tuple of its own, so that nothing derived before is remembered.
        anew = Snapshot(
            at_s=snapshot.at_s,
            wall_s=snapshot.wall_s,
            root=snapshot.root,
            host=snapshot.host,
            processes=(*snapshot.processes,),
            segments=snapshot.segments,
            loaders=snapshot.loaders,
        )
        wait_graph(anew)
        ended_s = time.thread_time()
        self.look_ms.append((looked_s - began_s) * 1000)
        self.waits_ms.append((ended_s - looked_s) * 1000)
        self.beside_ms.append((ended_s - began_s) * 1000)
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int, nargs="?", default=64)
    parser.add_argument("ticks", type=int, nargs="?", default=15)
    parser.add_argument("--profile", action="store_true", help="what it is spent on")
    arguments = parser.parse_args()
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(arguments.workers), "--pause", "0.25"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        try:
            measure(program.pid, arguments.ticks, is_profiled=arguments.profile)
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def measure(pid: int, ticks: int, *, is_profiled: bool) -> None:
    """Read and diagnose a running job once a second."""
    tree, engine, profile = TreeCollector(identify(pid)), TimedEngine(), cProfile.Profile()
    fold = Fold()
    whole_ms = []
    for tick in range(ticks + STARTING_TICKS):
        reading = tree.collect(ReadRequest())
        assert reading is not None
        fold.apply(reading)
        if is_profiled and tick >= STARTING_TICKS:
            profile.enable()
        began_s = time.thread_time()
        snapshot = engine.diagnosed(fold.snapshot(), fold.history())
        whole_ms.append((time.thread_time() - began_s) * 1000)
        profile.disable()
        time.sleep(1.0)
    settled = slice(STARTING_TICKS, None)
    waits, look = median(engine.waits_ms[settled]), median(engine.look_ms[settled])
    others = zip(whole_ms[settled], engine.beside_ms[settled], strict=True)
    build = median(whole - beside for whole, beside in others) - waits
    print(f"{len(snapshot.processes)} processes, found: {[f.rule for f in snapshot.findings]}")
    print(f"{'the snapshot itself':<24}{build:8.2f} ms")
    print(f"{'waits':<24}{waits:8.2f} ms")
    print(f"{'rules':<24}{look:8.2f} ms")
    print(f"{'diagnosis / snapshot':<24}{(waits + look) / build:8.2f}")
    if is_profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
