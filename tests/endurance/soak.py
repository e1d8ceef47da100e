"""A job that forks all the time, for minutes, with the hook in and beside it one without.

    python -m tests.endurance.soak --for 600

The program of both is `tests/programs/hook_soak.py`. Its first reading is left out: what is loaded
once is loaded by then. Observers come to all processes of the one with the hook, ask, leave in the
middle of an answer, or are killed. At the end no child may have hung, nothing may be left in the
runtime directory, descriptors and threads must be as many as in the beginning, and memory may have
grown by no more than beside it, but for what the hook is allowed to take. Batches that such a
program loses (`lost`) are shown for both: it is seen without the hook, too. The exit code is the
number of things that are not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.conftest import PROGRAMS
from tests.integration.hook.client import Client, sockets

ALLOWED_KIB = 1024
"""KiB that the hook may use."""
NOISE_KIB = 2048
"""KiB by which two runs of one program differ: the allocator's arenas."""
Reading = dict[str, Any]

OBSERVER = """
import socket, sys
observer = socket.socket(socket.AF_UNIX)
observer.connect(sys.argv[1])
while observer.recv(65536):
    print("heard", flush=True)
"""


class Job(threading.Thread):
    """One run of the program, and what it printed."""

    def __init__(self, way: str, seconds: float, runtime: str) -> None:
        super().__init__()
        self.way = way
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "hook_soak.py"), way, str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": runtime, "OMP_NUM_THREADS": "1"},
        )
        self.readings: list[Reading] = []
        self.other: list[str] = []

    def run(self) -> None:
        """Read all it prints."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.readings.append(json.loads(line))
                print(f"{self.way:8}", line.strip(), flush=True)
            else:
                self.other.append(line.strip())
        self.process.wait()

    def grown(self, what: str) -> int:
        """By how much a value grew since the first reading that counts."""
        return int(self.readings[-1][what]) - int(self.readings[1][what])


class Observers:
    """Observers that connect, send requests, disconnect and are killed, until they are stopped."""

    def __init__(self, runtime: Path, main: int) -> None:
        self._runtime = runtime
        self._main = main
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._visit, self._die)]
        self.counts = {"asked": 0, "left": 0, "killed": 0, "refused": 0}

    def __enter__(self) -> Observers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _visit(self) -> None:
        """Send a request to each process in turn; disconnect from every third during its answer."""
        chosen = random.Random(3)
        while not self._stop.wait(0.05):
            found = sockets(self._runtime)
            if not found:
                continue
            path = found[chosen.choice([self._main, *found]) if self._main in found else min(found)]
            try:
                with Client(path, timeout_s=20) as client:
                    if chosen.randrange(3) == 0:
                        self.counts["left"] += 1
                        continue
                    client.hello()
                    client.ask("stacks")
                    client.ask("gauges")
                self.counts["asked"] += 1
            except (OSError, EOFError):
                self.counts["refused"] += 1  # a child that has exited, or one that is forking

    def _die(self) -> None:
        """An observer that is killed when the first bytes arrive."""
        while not self._stop.wait(0.5):
            path = sockets(self._runtime).get(self._main)
            if path is None:
                continue
            command = [sys.executable, "-S", "-c", OBSERVER, str(path)]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as observer:
                assert observer.stdout is not None
                self.counts["killed"] += bool(observer.stdout.readline())
                observer.kill()


def faults(bare: Job, hooked: Job, left: list[str]) -> list[str]:
    """The violated expectations, in words."""
    found = []
    for job in (bare, hooked):
        if job.process.returncode or job.other != ["ready", "end 0 0"]:
            found.append(f"{job.way}: code {job.process.returncode}, printed {job.other}")
        if len(job.readings) < 3:
            return [*found, f"{job.way}: too few readings"]
        if job.readings[-1]["hung"]:
            found.append(f"{job.way}: hung {job.readings[-1]['hung']}")
    found += [
        f"{what} grew by {hooked.grown(what)}, without by {bare.grown(what)}"
        for what in ("fds", "threads")
        if hooked.grown(what) > max(0, bare.grown(what))
    ]
    more_kib = hooked.grown("rss_kib") - bare.grown("rss_kib")
    if more_kib > ALLOWED_KIB + NOISE_KIB:
        found.append(f"memory grew by {more_kib} KiB more than without")
    if left:
        found.append(f"left in the runtime directory: {left}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.endurance.soak", description=__doc__)
    parser.add_argument("--for", dest="seconds", type=float, default=600)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="soak-") as runtime:
        hooked, bare = Job("with", seconds, runtime), Job("without", seconds, runtime)
        for job in (hooked, bare):
            job.start()
        with Observers(Path(runtime), hooked.process.pid) as observers:
            for job in (hooked, bare):
                job.join()
        left = [path.name for path in Path(runtime, "mpwatch").iterdir()]
    print("observers", observers.counts)
    for job in (hooked, bare):
        grown = {what: job.grown(what) for what in ("rss_kib", "fds", "threads")}
        with contextlib.suppress(IndexError):
            print(f"{job.way:8} grew by {grown} since {job.readings[1]['at_s']} s")
    found = faults(bare, hooked, left)
    for each in found:
        print("FAULT", each)
    print(f"{len(found)} things are not as they must be")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
