"""What N local agents and their head cost, each agent on one small process of a job of N.

    python -m tests.benchmarks.nodes_agents 64

The processes have the environment of ranks, sleep, and compute for 5 ms each half second; none
loads torch. Measured from the moment at which every agent has read its process, for 40 s: cpu,
proportional memory (Pss: pages that several share count in parts), bytes that each agent has sent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable

from mpwatch.nodes.across.judge import JobJudge
from mpwatch.nodes.head.head import Head
from mpwatch.nodes.launchers.engines import launches
from mpwatch.nodes.launchers.launch import AgentCommand
from tests import procfs

SECONDS = 40.0
SETTLE_S = 180.0
JUDGE_S = 0.5
WORK = """
import time
while True:
    time.sleep(0.5)
    end_s = time.thread_time() + 0.005
    while time.thread_time() < end_s:
        pass
"""
START = """
import os, subprocess, sys
for number in range(int(sys.argv[2])):
    environment = {**os.environ, "RANK": str(number), "WORLD_SIZE": sys.argv[2]}
    print(subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=environment, stdout=2).pid)
"""


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of processes."""
    total = 0
    for pid in pids:
        fields = procfs.text(pid, "stat").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def pss_mb(pids: Iterable[int]) -> float:
    lines = [
        line
        for pid in pids
        for line in procfs.text(pid, "smaps_rollup").splitlines()
        if line.startswith("Pss:")
    ]
    return sum(int(line.split()[1]) for line in lines) / 1024


def watch(head: Head, judge: JobJudge, end_s: float) -> int:
    """Receive and judge until then; how often was judged."""
    rounds, due_s = 0, 0.0
    while time.monotonic() < end_s:
        head.step(0.1)
        if time.monotonic() >= due_s:
            due_s, rounds = time.monotonic() + JUDGE_S, rounds + 1
            views = head.views()
            judge.findings(views)
    return rounds


def measure(count: int, mark: str) -> None:
    head = Head(launches(f"local:{count}", AgentCommand({"MPWATCH_AGENTS": mark})))
    try:
        judge = JobJudge()
        began_s = time.monotonic()
        while sum(bool(v.summary and v.summary.ranks) for v in head.views()) < count:
            assert time.monotonic() - began_s < SETTLE_S
            head.step(0.1)
        settled_s = time.monotonic() - began_s
        agents = procfs.children(os.getpid())
        before = cpu_s(agents), time.process_time(), _received(head)
        began_s = time.monotonic()
        watch(head, judge, began_s + SECONDS)
        seconds = time.monotonic() - began_s
        received = (_received(head) - before[2]) / count / seconds
        states = {view.state for view in head.views()}
        print(
            f"{count} agents  all watching after {settled_s:.0f} s, then {states}\n"
            f"agents: {(cpu_s(agents) - before[0]) / seconds / count:.4f} cores, "
            f"{pss_mb(agents) / count:.1f} MB, {received:.0f} bytes/s each\n"
            f"head: {(time.process_time() - before[1]) / seconds:.4f} cores, "
            f"{pss_mb([os.getpid()]):.0f} MB; load {os.getloadavg()[0]:.0f}"
        )
    finally:
        head.close()


def _received(head: Head) -> int:
    return sum(view.received_bytes for view in head.views())


def main() -> None:
    count, mark = int(sys.argv[1]), uuid.uuid4().hex
    started = subprocess.run(
        [sys.executable, "-c", START, WORK, str(count)],
        env={**os.environ, "MPWATCH_AGENTS": mark},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    try:
        measure(count, mark)
    finally:
        for pid in map(int, started.stdout.split()):
            os.kill(pid, 9)


if __name__ == "__main__":
    main()
