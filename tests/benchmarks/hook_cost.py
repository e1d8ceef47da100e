"""What the hook costs, as ratios from one run: `python -m tests.benchmarks.hook_cost [PART ...]`.

Parts: `call` (a wrapped call beside a bare one), `pingpong` (a tiny tensor through queues, with an
observer connected), `loader` (batches per second in alternating pairs), `enter` (time and memory of
`instrument()` after torch is imported). Every figure is a median with its spread; where both sides
are compared, each pair runs with the hook and without it, in alternating order.
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
from typing import Any

PAIRS = int(os.environ.get("PAIRS", "10"))


def spread(values: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.4g} ({low:.4g} .. {high:.4g})"


def nanoseconds(call: Callable[[], Any], number: int = 100_000) -> float:
    """Time of one call, the loop included."""
    began = time.perf_counter_ns()
    for _ in range(number):
        call()
    return (time.perf_counter_ns() - began) / number


def call() -> None:
    import mpwatch
    from mpwatch import hook
    from mpwatch.hook import wire

    mpwatch.instrument()
    session = hook.current()
    assert session is not None
    record, now = session.record, session.system.monotonic_ns

    def bare() -> None:
        return None

    def wrapped() -> None:
        began_ns = now()
        bare()
        record(wire.QUEUE_PUT, began_ns, 0, 0, 5)

    rows = [(nanoseconds(bare), nanoseconds(wrapped)) for _ in range(PAIRS)]
    print("bare call, ns:            ", spread([row[0] for row in rows]))
    print("wrapped and recorded, ns: ", spread([row[1] for row in rows]))
    print("above the bare call, ns:  ", spread([row[1] - row[0] for row in rows]))
    print("times the bare call:      ", spread([row[1] / row[0] for row in rows]))


def enter() -> None:
    import tracemalloc

    import torch
    import torch.utils.data

    import mpwatch

    assert torch
    began = time.perf_counter()
    mpwatch.instrument()
    first_ms = (time.perf_counter() - began) * 1e3
    mpwatch.uninstrument()
    tracemalloc.start()
    mpwatch.instrument()
    held, _ = tracemalloc.get_traced_memory()
    print(f"instrument(), its imports included: {first_ms:.1f} ms")
    print(f"held afterwards, without code: {held / 1024:.0f} KiB and a ring of 516 KiB")


def both(program: str) -> list[tuple[float, float]]:
    """Run a program of this file with and without the hook, in pairs of alternating order."""
    rows = []
    for number in range(PAIRS):
        pair = {}
        for hooked in (number % 2 == 0, number % 2 == 1):
            pair[hooked] = measure(program, hooked)
        rows.append((pair[False], pair[True]))
    return rows


def measure(program: str, hooked: bool) -> float:
    """One run in a process of its own, with an observer connected if it has the hook."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.hook_cost", f"_{program}", str(int(hooked))],
            stdout=subprocess.PIPE,
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
        )
        stop = threading.Event()
        observer = threading.Thread(target=observe, args=(folder, stop))
        observer.start()
        out, _ = process.communicate()
        stop.set()
        observer.join()
    return float(json.loads(out.splitlines()[-1]))


def observe(folder: str, stop: threading.Event) -> None:
    """Read whatever every hook in a directory sends."""
    open_ones: dict[str, socket.socket] = {}
    while not stop.wait(0.2):
        for path in glob.glob(f"{folder}/mpwatch/*.sock"):
            if path not in open_ones:
                client = socket.socket(socket.AF_UNIX)
                try:
                    client.connect(path)
                except OSError:
                    client.close()
                    continue
                client.setblocking(False)
                open_ones[path] = client
        for client in open_ones.values():
            try:
                while client.recv(1 << 20):
                    continue
            except OSError:
                continue
    for client in open_ones.values():
        client.close()


def _echo(inbox: Any, outbox: Any) -> None:
    while (tensor := inbox.get()) is not None:
        outbox.put(tensor)


def _pingpong() -> float:
    """Seconds for a round of a new tensor of four numbers through two queues."""
    import torch
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=_echo, args=(inbox, outbox))
    child.start()
    times = []
    for _ in range(3000):
        began = time.perf_counter()
        inbox.put(torch.ones(4))
        outbox.get()
        times.append(time.perf_counter() - began)
    inbox.put(None)
    child.join()
    return statistics.median(times[500:])


def _loader() -> float:
    """Seconds for a batch of a loader with two workers."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(
        TensorDataset(torch.arange(24_000)),
        batch_size=8,
        num_workers=2,
        multiprocessing_context="fork",
    )
    batches = iter(loader)
    next(batches)
    began = time.perf_counter()
    count = sum(1 for _ in batches)
    return (time.perf_counter() - began) / count


def pingpong() -> None:
    rows = both("pingpong")
    print("round trip without, us:   ", spread([row[0] * 1e6 for row in rows]))
    print("slower with the hook, %:  ", spread([(row[1] / row[0] - 1) * 100 for row in rows]))


def loader() -> None:
    rows = both("loader")
    print("batches/s without:        ", spread([1 / row[0] for row in rows]))
    print("fewer with the hook, %:   ", spread([(1 - row[0] / row[1]) * 100 for row in rows]))


def main() -> None:
    parts = sys.argv[1:] or ["call", "enter", "pingpong", "loader"]
    if parts[0].startswith("_"):
        import mpwatch

        if parts[1] == "1":
            mpwatch.instrument()
        print(json.dumps({"_pingpong": _pingpong, "_loader": _loader}[parts[0]]()))
        return
    for part in parts:
        {"call": call, "enter": enter, "pingpong": pingpong, "loader": loader}[part]()


if __name__ == "__main__":
    main()
