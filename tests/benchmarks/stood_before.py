"""How soon `diagnose` answers of programs that had stood still before it was called.

    python -m tests.benchmarks.stood_before                      after 150 s
    python -m tests.benchmarks.stood_before --beside ../before   the same with another checkout, too
    python -m tests.benchmarks.stood_before --after 30 crossed_locks ended_writer

The programs are those of `tests/integration/diagnose/test_stuck_jobs.py`, started anew for each
checkout: taking stacks may wake up a thread, and the kernel notes then that it has run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.diagnose.test_stuck_jobs import STUCK

HERE = Path(__file__).parents[2]
PROGRAMS = HERE / "tests" / "programs" / "stuck_jobs.py"
LIMIT_S = 150.0


def started(name: str) -> subprocess.Popen[bytes]:
    """A program that stands still soon, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def answer(checkout: Path, pid: int) -> tuple[float, str]:
    """Seconds until the answer, and the rule, severity and words of the first finding."""
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "diagnose", str(pid), "--no-hook", "--json"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    took_s = time.monotonic() - began_s
    if not done.stdout:
        return took_s, done.stderr.strip()
    findings = json.loads(done.stdout)["findings"]
    if not findings:
        return took_s, "no finding"
    first = findings[0]
    return took_s, f"{first['severity']} {first['rule']}: {first['summary'][:90]}"


def measured(checkout: Path, names: list[str], after_s: float) -> list[float]:
    """Print and return the seconds of one checkout."""
    programs = {name: started(name) for name in names}
    took: list[float] = []
    try:
        time.sleep(after_s)
        print(checkout, flush=True)
        for name, program in programs.items():
            seconds, words = answer(checkout, program.pid)
            took.append(seconds)
            print(f"  {seconds:5.1f} s  {name:<22} {words}", flush=True)
    finally:
        for program in programs.values():
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(STUCK), help="all without")
    parser.add_argument("--after", type=float, default=150.0, help="seconds (default %(default)s)")
    parser.add_argument("--beside", type=Path, help="another checkout, measured first")
    arguments = parser.parse_args()
    checkouts = [arguments.beside.resolve()] if arguments.beside else []
    for checkout in (*checkouts, HERE):
        took = measured(checkout, arguments.names, arguments.after)
        longer = sum(seconds >= 20 for seconds in took)
        print(
            f"  median {statistics.median(took):.1f} s, {longer} of {len(took)} after 20 s or more"
        )


if __name__ == "__main__":
    main()
