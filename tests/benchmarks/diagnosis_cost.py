"""What diagnosing one reading of a DataLoader job costs, against building the snapshot itself.

    python -m tests.benchmarks.diagnosis_cost [WORKERS] [TICKS] [--profile]

Cpu time of the diagnosing thread, median over the ticks, of `Fold.snapshot`, of deriving the waits,
of the account of time and of running all rules; and the mean of `Engine.diagnosed`, which does all
of it for a large job on every third reading. The ratio is comparable between machines. Nothing
is asserted.
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
from statistics import mean, median

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.identify import identify
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import advanced
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.engine import RULES, Engine
from mpwatch.model.account import Account
from mpwatch.observe.state.fold import Fold

PROGRAM = Path(__file__).parents[1] / "programs" / "loader.py"
STARTING_TICKS = 4


def rules_ms(index: Index) -> float:
    """What all rules cost on a snapshot, waits included where they were not derived before."""
    began_s = time.thread_time()
    for rule in RULES:
        list(rule.check(index))
    return (time.thread_time() - began_s) * 1000


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
    tree, engine, profile = TreeCollector(identify(pid)), Engine(), cProfile.Profile()
    fold = Fold()
    build_ms, waits_ms, all_rules_ms, engine_ms = [], [], [], []
    account, account_ms = Account(), []
    for tick in range(ticks + STARTING_TICKS):
        reading = tree.collect(ReadRequest())
        assert reading is not None
        fold.apply(reading)
        began_s = time.thread_time()
        snapshot, history = fold.snapshot(), fold.history()
        built_s = time.thread_time()
        diagnosed = engine.diagnosed(snapshot, history)
        diagnosed_s = time.thread_time()
        index = Index(snapshot, history)
        if is_profiled and tick >= STARTING_TICKS:
            profile.enable()
        started_s = time.thread_time()
        waits = wait_graph(index)
        waits_ms.append((time.thread_time() - started_s) * 1000)
        before = account
        started_s = time.thread_time()
        account = advanced(before, index, waits)
        if account is not before:
            account_ms.append((time.thread_time() - started_s) * 1000)
        all_rules_ms.append(rules_ms(index))
        profile.disable()
        build_ms.append((built_s - began_s) * 1000)
        engine_ms.append((diagnosed_s - built_s) * 1000)
        time.sleep(1.0)
    settled = slice(STARTING_TICKS, None)
    build, engine_mean = median(build_ms[settled]), mean(engine_ms[settled])
    print(f"{len(snapshot.processes)} processes, found: {[f.rule for f in diagnosed.findings]}")
    print(f"{'the snapshot itself':<32}{build:8.2f} ms")
    print(f"{'waits':<32}{median(waits_ms[settled]):8.2f} ms")
    print(f"{'the account, at most every 2.25 s':<32}{median(account_ms):8.2f} ms")
    print(f"{'all rules':<32}{median(all_rules_ms[settled]):8.2f} ms")
    print(f"{'the engine, mean of readings':<32}{engine_mean:8.2f} ms")
    print(f"{'diagnosis / snapshot':<32}{engine_mean / build:8.2f}")
    if is_profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
