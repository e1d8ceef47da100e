"""Measuring by turns: the same work without the hook, with empty wrappers and with the hook.

Other people's load on the machine is larger than what is measured. So blocks with and without
follow each other in changing order, each round is compared with itself only, and the figure that
counts is cpu time, which others change little. The job is kept on one core, and the observer that
is connected to it on the others: then neither the scheduler's choice of a core nor a core's warmth
differs from block to block.

What a connected observer costs is per second and process, 1 to 2 ms: a job that gets a tenth of a
core because others have the rest shows it ten times larger per batch. So work is measured without
an observer, too.
"""

from __future__ import annotations

import glob
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from math import comb

from .hook_floor import Floor

PAIRS = int(os.environ.get("PAIRS", "20"))
STATES = ("bare", "floor", "hook")
_floor = Floor()
WATCHED = "BENCHMARK_WATCHED"
"""Environment variable of a program that is to wait until an observer is connected."""


def spread(values: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.4g} ({low:.4g} .. {high:.4g})"


def load() -> str:
    """The load of the machine."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def cpu_s(pids: list[int]) -> float:
    """Cpu time of some processes so far, 0 being this one, in nanoseconds' resolution.

    `os.times` counts in ticks of 10 ms. The number of another process's clock is made of its pid as
    `clock_getcpuclockid` of glibc and musl makes it.
    """
    return sum(time.clock_gettime(~pid << 3 | 2) if pid else time.process_time() for pid in pids)


def records() -> int:
    """How many records this process wrote, 0 without the hook."""
    from mpwatch import hook

    session = hook.current()
    return 0 if session is None or session.state == "off" else session.ring.handed_out()


def record_s() -> float:
    """Cpu seconds that one record takes where nothing else is done: the floor of what it can."""
    import mpwatch
    from mpwatch import hook
    from mpwatch.hook import wire

    mpwatch.instrument()
    session = hook.current()
    assert session is not None
    record, now, count = session.record, session.system.monotonic_ns, 20_000
    began = time.process_time()
    for _ in range(count):
        record(wire.QUEUE_PUT, now(), 0, 0, 5)
    took = time.process_time() - began
    mpwatch.uninstrument()
    return took / count


def keep_to(cores: set[int]) -> None:
    """Restrict this process and its children to some cores, where there are enough of them."""
    if cores:
        os.sched_setaffinity(0, cores)


def cores_apart() -> tuple[set[int], set[int]]:
    """A core for the job and the others for its observer; empty sets on a machine with one core."""
    cores = sorted(os.sched_getaffinity(0))
    return ({cores[-1]}, set(cores[:-1])) if len(cores) > 1 else (set(), set())


def alternate(
    block: Callable[[], list[float]], turn: Callable[[str], None], times: int = 1
) -> list[list[float]]:
    """Rounds of a block without anything, one with empty wrappers and one with the hook.

    Args:
        block: Runs for a second or less and returns what it took, each figure the less the better.
            Many short ones show more than few long ones: what others do to the machine then
            differs less between those that are compared.
        turn: Brings into the process what one of `STATES` says, and nothing else.
        times: How many rounds for each of `PAIRS`.
    """
    rows = []
    for number in range(PAIRS * times):
        found: dict[str, list[float]] = {}
        for each in range(len(STATES)):
            # Each state is first, second and last in turn, and follows each of the others.
            step = each if number % 2 else -each
            state = STATES[(number // 2 + step) % len(STATES)]
            turn(state)
            found[state] = block()
        rows.append([figure for state in STATES for figure in found[state]])
    return rows


def turn(state: str) -> None:
    """Set a state in this process; wait for an observer of the hook if one is due."""
    import mpwatch
    from mpwatch import hook

    mpwatch.uninstrument()
    _floor.uninstall()
    if state == "floor":
        _floor.install()
    if state != "hook":
        return
    mpwatch.instrument()
    session = hook.current()
    assert session is not None
    while WATCHED in os.environ and not session.server.connections:
        time.sleep(0.01)


def apart(module: str, program: str, watched: bool) -> tuple[list[list[float]], float]:
    """Run a program of a benchmark in processes of their own.

    Args:
        module: Name of the benchmark's module in this package.
        program: What it is to run; it prints its rows and what a record takes as JSON.
        watched: Whether an observer is to be connected to every hook.
    """
    job, others = cores_apart()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.benchmarks.{module}", program],
            stdout=subprocess.PIPE,
            preexec_fn=lambda: keep_to(job),
            # Threads of OpenMP that spin while they wait use 200 ms of cpu at times.
            env={**os.environ, "XDG_RUNTIME_DIR": folder, "OMP_NUM_THREADS": "1"}
            | ({WATCHED: "1"} if watched else {}),
        )
        keep_to(others)
        stop = threading.Event()
        observer = threading.Thread(target=observe, args=(folder, stop))
        if watched:
            observer.start()
        out, _ = process.communicate()
        stop.set()
        if watched:
            observer.join()
        keep_to(job | others)
    rows, each_s = json.loads(out.splitlines()[-1])
    return rows, each_s


def observe(folder: str, stop: threading.Event) -> None:
    """Observe every hook in a directory like a dashboard, with gauges each second."""
    open_ones: dict[str, socket.socket] = {}
    asked_s = 0.0
    while not stop.wait(0.2):
        for path in glob.glob(f"{folder}/mpwatch/*.sock"):
            if path not in open_ones and (client := _connect(path)) is not None:
                open_ones[path] = client
        is_time = time.monotonic() - asked_s > 1.0
        asked_s = time.monotonic() if is_time else asked_s
        for path, client in tuple(open_ones.items()):
            if not _attend(client, is_time):
                open_ones.pop(path).close()
    for client in open_ones.values():
        client.close()


def _connect(path: str) -> socket.socket | None:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
    except OSError:
        client.close()
        return None
    client.setblocking(False)
    return client


def _attend(client: socket.socket, asks: bool) -> bool:
    """Read what has arrived; whether the hook is still connected."""
    from mpwatch.hook import wire

    try:
        if asks:
            client.send(wire.pack_frame(wire.REQUEST, b'{"ask": "gauges", "id": 1}'))
        while client.recv(1 << 20):
            continue
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def show(what: str, rows: list[list[float]], each_s: float) -> None:
    """Print what a unit of work takes without the hook and how much more with it.

    Args:
        what: The unit.
        rows: A round each: seconds, cpu seconds and records in each of `STATES`.
        each_s: What one record takes where nothing else is done.
    """
    print(f"{what} without anything, cpu us:", spread([row[1] * 1e6 for row in rows]))
    floor, hook = 3, 6
    for name, column in (("cpu", 1), ("wall", 0)):
        _compare(f"more {name} with the hook, %", rows, column, column + hook)
        _compare(f"more {name} with empty wrappers, %", rows, column, column + floor)
    _compare("more cpu with the hook than with empty wrappers, %", rows, 1 + floor, 1 + hook)
    print("the hook, cpu us:      ", spread([(row[1 + hook] - row[1]) * 1e6 for row in rows]))
    print("empty wrappers, cpu us:", spread([(row[1 + floor] - row[1]) * 1e6 for row in rows]))
    written = statistics.median(row[2 + hook] for row in rows)
    alone_s = statistics.median(row[1] for row in rows)
    print(
        f"{written:.1f} records of {each_s * 1e6:.2f} us each, timed apart where all is warm:"
        f" {written * each_s * 1e6:.1f} us, {100 * written * each_s / alone_s:.1f} %"
    )


def _compare(what: str, rows: list[list[float]], one: int, other: int) -> None:
    """Print by how much a figure of each round is larger than another one."""
    more = [(row[other] / row[one] - 1) * 100 for row in rows]
    larger = sum(each > 0 for each in more)
    verdict = "a difference" if _is_shown(larger, len(more)) else "no difference shown"
    low, high = _bounds(more)
    print(
        f"{what}: {spread(more)}, the median lies in {low:.1f} .. {high:.1f};"
        f" more in {larger} of {len(more)}: {verdict}"
    )


def _bounds(values: list[float]) -> tuple[float, float]:
    """Bounds of the median in 95 of 100 such runs, from the order of the values alone."""
    ordered, count = sorted(values), len(values)
    chance, outside = 0.5**count, 0
    while chance <= 0.025 and outside < count // 2:
        outside += 1
        chance += comb(count, outside) / 2**count
    first = max(0, outside - 1)
    return ordered[first], ordered[count - 1 - first]


def _is_shown(slower: int, count: int) -> bool:
    """Whether so many of the pairs are unlikely by chance (sign test, one-sided, 5 %)."""
    return sum(comb(count, more) for more in range(slower, count + 1)) / 2**count < 0.05
