"""How long an attach takes, and how long it stops the target, beside gdb and memray.

All methods attach to the same kinds of targets, one after another in the same run, so the figures
can be compared with each other; they mean little on another machine.

- `ready`: from the command until the hook answers (gdb: until gdb has ended, without any hook).
- `stopped`: how long the target's main thread was stopped, by mpwatch's clock.
- `gap`: the longest pause that a target in a loop has measured during the attach. It includes the
  work of the injected code, and of other programs on the machine.
- `quiet`: the same for a moment without an attach.
- `refused`: an attach that ended without the hook for a reason that passes; it is repeated.
- `out`: from the start of a detach until the hook is detached from all processes of that tree.
- `tree`: from the command until every hook of a parent with `--tree` children is there.
- `stock`: how long the hook searches a program of `--objects` objects; `cpu`: its cpu time.

Each line gives the least value, the median, the 90th and 99th percentile and the worst; the load
of the machine before and after is printed first.

    python -m tests.benchmarks.attach_time [--count N] [--only TARGET] [--others N]
        [--memray PYTHON]
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.inject_tree import detach_tree, inject_tree
from mpwatch.attach.target import read_target
from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import read_frame
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.procfs import stat_of
from mpwatch.hook import wire

# Prints the longest time between two turns of its loop whenever it gets a line.
TURNING = """
import os, time
{setup}
longest = 0.0
print("ready", flush=True)
os.set_blocking(0, False)
last = time.perf_counter()
while True:
    {turn}
    now = time.perf_counter()
    longest = max(longest, now - last)
    try:
        asked = os.read(0, 64)
    except BlockingIOError:
        asked = b""
    if asked:
        print(longest, flush=True)
        longest = 0.0
        now = time.perf_counter()
    last = now
"""
# A training of a small network: a main process and two DataLoader workers.
TRAINING = """
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 1 << 40
    def __getitem__(self, index):
        return torch.full((256,), float(index % 7)), index % 10
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
def step(batches=iter(DataLoader(Numbers(), batch_size=32, num_workers=2))):
    values, labels = next(batches)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(values), labels).backward()
    optimizer.step()
"""
BLOCKED = """
import os
print("ready", flush=True)
while True:
    os.read(0, 1)
"""
TREE = """
import os, time
for _ in range({count}):
    if os.fork() == 0:
        break
else:
    print("ready", flush=True)
while os.getppid() != 1:
    time.sleep(0.02)
"""
MANY_OBJECTS = """
import multiprocessing, time, torch.multiprocessing
objects = [(number, []) for number in range({count} // 2)]
queues = torch.multiprocessing.Queue(), torch.multiprocessing.SimpleQueue()
print("ready", flush=True)
while True:
    time.sleep(0.02)
"""
WITHIN_S = 60
TARGETS = {
    "busy": TURNING.format(setup="", turn="pass"),
    "idle": TURNING.format(setup="", turn="time.sleep(0.005)"),
    "blocked": BLOCKED,
    "training": TURNING.format(setup=TRAINING, turn="step()"),
}
GDB = (
    "-batch", "-nx", "-ex", "set pagination off", "-ex", "set confirm off",
    "-ex", 'call (int) Py_AddPendingCall((void*) &PyRun_SimpleString, "import os")',
)  # fmt: skip


def start(kind: str, folder: str, python: str = sys.executable) -> subprocess.Popen[str]:
    return start_text(TARGETS[kind], folder, python)


def start_text(text: str, folder: str, python: str = sys.executable) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
    popen = subprocess.Popen(
        [python, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert popen.stdout is not None
    assert popen.stdout.readline() == "ready\n"
    return popen


def gap_s(popen: subprocess.Popen[str]) -> float:
    """The longest gap since the last call."""
    assert popen.stdin is not None
    assert popen.stdout is not None
    popen.stdin.write("?\n")
    popen.stdin.flush()
    return float(popen.stdout.readline())


def by_mpwatch(kind: str, count: int, folder: str) -> dict[str, list[float]]:
    """Attach and detach `count` times; a blocked target is woken once the call is queued."""
    found: dict[str, list[float]] = {"ready": [], "stopped": [], "gap": [], "quiet": []}
    popen = start(kind, folder)
    process = stat_of(popen.pid).process

    def wake(name: str) -> None:
        if name == "handed over" and kind == "blocked":
            assert popen.stdin is not None
            popen.stdin.write("x")
            popen.stdin.flush()

    for _ in range(count):
        if kind != "blocked":
            gap_s(popen)
            time.sleep(0.05)
            found["quiet"].append(gap_s(popen))
        attached = inject(process, timeout_s=10, step=wake)
        while attached.passes:  # under load a thread may be in system calls whenever it is seen
            found.setdefault("refused", []).append(attached.took_s)
            attached = inject(process, timeout_s=10, step=wake)
        assert attached.state == "ready", attached
        if kind != "blocked":
            found["gap"].append(gap_s(popen))
        found["ready"].append(attached.took_s)
        found["stopped"].append(attached.stopped_s or 0.0)
        detached = detach(process, timeout_s=10)
        assert detached.state == "absent", detached
    popen.kill()
    popen.communicate()
    return found


def by_gdb(kind: str, count: int, folder: str) -> dict[str, list[float]]:
    """A pending call by a gdb script: only until gdb has ended, so without any hook."""
    found: dict[str, list[float]] = {"ready": [], "gap": []}
    for _ in range(count):
        popen = start(kind, folder)
        if kind != "blocked":
            gap_s(popen)
        started_s = time.perf_counter()
        command = ["gdb", "-p", str(popen.pid), *GDB]
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=WITHIN_S)
            found["ready"].append(time.perf_counter() - started_s)
            if kind != "blocked":
                found["gap"].append(gap_s(popen))
        except (subprocess.TimeoutExpired, BrokenPipeError, ValueError) as error:
            # A call at an arbitrary point ends some targets: these print nothing more.
            print(f"gdb, {kind}: {error!r}; the target ended: {popen.poll()}", file=sys.stderr)
        popen.kill()
        popen.communicate()
    return found


def by_memray(kind: str, count: int, folder: str, python: str) -> dict[str, list[float]]:
    """`memray attach` into targets of an environment that has memray."""
    found: dict[str, list[float]] = {"ready": [], "gap": []}
    for number in range(count):
        popen = start(kind, folder, python)
        if kind != "blocked":
            gap_s(popen)
        output = Path(folder, f"{kind}-{number}.bin")
        started_s = time.perf_counter()
        command = [python, "-m", "memray", "attach", "-o", str(output), str(popen.pid)]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=WITHIN_S)
            found["ready"].append(time.perf_counter() - started_s)
            if kind != "blocked":
                found["gap"].append(gap_s(popen))
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"memray, {kind}: {error}", file=sys.stderr)
        popen.kill()
        popen.communicate()
    return found


def by_tree(count: int, times: int, folder: str) -> dict[str, list[float]]:
    """Attach to a parent and its children and detach from them, several times."""
    found: dict[str, list[float]] = {"tree": [], "out": []}
    popen = start_text(TREE.format(count=count), folder)
    root = stat_of(popen.pid).process
    collector = TreeCollector(root)
    for _ in range(times):
        began_s = time.perf_counter()
        tree = collector.collect(
            ReadRequest(links_count=0, maps_count=0, memory_count=0, gpu=False)
        )
        assert tree is not None
        outcomes = inject_tree(tree.processes, lambda outcome: None, timeout_s=WITHIN_S)
        found["tree"].append(time.perf_counter() - began_s)
        assert [each.state for each in outcomes] == ["ready"] * (count + 1), outcomes
        began_s = time.perf_counter()
        detach_tree(tree.processes, lambda outcome: None, timeout_s=WITHIN_S)
        found["out"].append(time.perf_counter() - began_s)
    popen.kill()
    popen.communicate()
    return found


def by_objects(count: int, times: int, folder: str) -> dict[str, list[float]]:
    """The duration of the hook's search in a program with many objects, as the hook reports it."""
    found: dict[str, list[float]] = {"ready": [], "stock": [], "cpu": []}
    popen = start_text(MANY_OBJECTS.format(count=count), folder)
    process = stat_of(popen.pid).process
    for _ in range(times):
        attached = inject(process, timeout_s=WITHIN_S)
        assert attached.state == "ready", attached
        found["ready"].append(attached.took_s)
        with discovery.connect(read_target(process).sample()) as client:
            hello = read_frame(client, wire.HELLO, WITHIN_S)
        assert hello is not None
        stock = hello["stock"]
        assert isinstance(stock, dict)
        found["stock"].append(stock["took_ms"] / 1000)
        found["cpu"].append(stock["cpu_ms"] / 1000)
        detach(process, timeout_s=WITHIN_S)
    popen.kill()
    popen.communicate()
    return found


def summary(values: list[float]) -> str:
    """Least, median, 90th and 99th percentile and worst, in milliseconds."""
    if not values:
        return "-".rjust(50)
    values = sorted(1000 * value for value in values)
    # The smallest value that so many per cent do not exceed: the worst is in the tail of p99.
    p90, p99 = (values[math.ceil(share * len(values)) - 1] for share in (0.9, 0.99))
    figures = values[0], statistics.median(values), p90, p99, values[-1]
    return " ".join(f"{each:9.2f}" for each in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="attaches by mpwatch per target")
    parser.add_argument("--only", choices=TARGETS, help="only attaches by mpwatch to this target")
    parser.add_argument("--others", type=int, default=5, help="attaches by the others per target")
    parser.add_argument("--memray", help="a Python in whose environment memray is installed")
    parser.add_argument("--tree", type=int, default=64, help="children of a tree")
    parser.add_argument("--objects", type=int, default=5_000_000, help="objects of a big program")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, list[float]]]] = {}
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        if not options.only:
            results["tree"] = {"mpwatch": by_tree(options.tree, options.others, folder)}
            results["objects"] = {"mpwatch": by_objects(options.objects, options.others, folder)}
        for kind in [options.only] if options.only else TARGETS:
            results[kind] = {"mpwatch": by_mpwatch(kind, options.count, folder)}
            if options.only:
                continue
            if shutil.which("gdb"):
                results[kind]["gdb"] = by_gdb(kind, options.others, folder)
            if options.memray:
                results[kind]["memray"] = by_memray(kind, options.others, folder, options.memray)
    if options.json:
        print(json.dumps(results))
        return
    load = f"load {load_before[0]:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"{load}, {os.cpu_count()} cpus")
    print(
        "milliseconds                                  min       p50       p90       p99     worst"
    )
    for kind, ways in results.items():
        for way, series in ways.items():
            for what, values in series.items():
                print(f"{kind:8} {way:8} {what:7} n={len(values):<5} {summary(values):>50}")


if __name__ == "__main__":
    main()
