"""What the hook costs, as ratios from one run: `python -m tests.benchmarks.hook_cost [PART ...]`.

Parts: `call` (a wrapped call beside a bare one), `pingpong` (a tiny tensor through queues, with an
observer connected), `loader` (a batch of a DataLoader with two workers), `enter` (time and memory
of `instrument()` after torch is imported; run it alone). Every figure is a median with its
quartiles. What is compared runs in turns in the same processes, in alternating order, and is given
in cpu time too, which other people's load changes less.
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
    """Cpu time of one call, the loop included."""
    began = time.process_time_ns()
    for _ in range(number):
        call()
    return (time.process_time_ns() - began) / number


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

    pack_into, memory = wire.RECORD.pack_into, bytearray(wire.RECORD_BYTES)

    def floor() -> None:
        began_ns = now()
        bare()
        at_ns = now()
        pack_into(memory, 0, 1, at_ns, wire.QUEUE_PUT, 0, 7, at_ns - began_ns, 0, 5, 0, 0)

    rows = [(nanoseconds(bare), nanoseconds(wrapped), nanoseconds(floor)) for _ in range(PAIRS)]
    print("bare call, ns:            ", spread([row[0] for row in rows]))
    print("wrapped and recorded, ns: ", spread([row[1] for row in rows]))
    print("above the bare call, ns:  ", spread([row[1] - row[0] for row in rows]))
    print("times the bare call:      ", spread([row[1] / row[0] for row in rows]))
    print("clock and packing alone:  ", spread([row[2] / row[0] for row in rows]), "times")


def enter() -> None:
    import tracemalloc

    import torch
    import torch.utils.data

    import mpwatch

    assert torch
    began, began_cpu = time.perf_counter(), time.process_time()
    mpwatch.instrument()
    cpu_ms = (time.process_time() - began_cpu) * 1e3
    first_ms = (time.perf_counter() - began) * 1e3
    mpwatch.uninstrument()
    tracemalloc.start()
    mpwatch.instrument()
    held, _ = tracemalloc.get_traced_memory()
    print(f"instrument(), its imports included: {first_ms:.1f} ms, cpu {cpu_ms:.1f} ms")
    print(f"held afterwards, without code: {held / 1024:.0f} KiB and a ring of 516 KiB")


def visited(program: str) -> list[list[float]]:
    """Run a program of this file in a process of its own, an observer at every hook in it."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.hook_cost", f"_{program}"],
            stdout=subprocess.PIPE,
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
        )
        stop = threading.Event()
        observer = threading.Thread(target=observe, args=(folder, stop))
        observer.start()
        out, _ = process.communicate()
        stop.set()
        observer.join()
    rows: list[list[float]] = json.loads(out.splitlines()[-1])
    return rows


def alternate(block: Callable[[], list[float]], turn: Callable[[bool], None]) -> list[list[float]]:
    """Pairs of one block without the hook and one with it, in alternating order.

    All in the same processes, so that neither where memory lies nor which core they run on differs.

    Args:
        block: Runs for a second or so and returns what it took, each figure the less the better.
        turn: Brings the hook in or takes it out.
    """
    rows = []
    for number in range(PAIRS):
        pair = {}
        for hooked in (number % 2 == 0, number % 2 == 1):
            turn(hooked)
            pair[hooked] = block()
        rows.append(pair[False] + pair[True])
    return rows


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
        for path, client in tuple(open_ones.items()):
            try:
                while client.recv(1 << 20):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            open_ones.pop(path).close()
    for client in open_ones.values():
        client.close()


def turn(hooked: bool) -> None:
    """Bring the hook into this process and wait for an observer, or take it out."""
    import mpwatch
    from mpwatch import hook

    if not hooked:
        mpwatch.uninstrument()
        return
    mpwatch.instrument()
    session = hook.current()
    assert session is not None
    while not session.server._connections:
        time.sleep(0.01)


def _echo(inbox: Any, outbox: Any) -> None:
    """Send tensors back; a truth value is whether to have the hook, `...` asks for cpu time."""
    while (item := inbox.get()) is not None:
        if isinstance(item, bool):
            turn(item)
        outbox.put(time.process_time() if item is ... else item)


def _pingpong() -> list[list[float]]:
    """Seconds and cpu seconds for a round of a new tensor of four numbers through two queues."""
    import torch
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=_echo, args=(inbox, outbox))
    child.start()

    def ask(item: Any) -> Any:
        inbox.put(item)
        return outbox.get()

    def turn_both(hooked: bool) -> None:
        turn(hooked)
        ask(hooked)
        rounds(200)

    def rounds(number: int) -> list[float]:
        times = []
        began_cpu = time.process_time() + ask(...)
        for _ in range(number):
            began = time.perf_counter()
            ask(torch.ones(4))
            times.append(time.perf_counter() - began)
        cpu = time.process_time() + ask(...) - began_cpu
        # A round that another program interrupted says nothing of the hook.
        return [statistics.quantiles(times, n=10)[0], cpu / number]

    rows = alternate(lambda: rounds(2000), turn_both)
    turn(False)
    inbox.put(None)
    child.join()
    return rows


def _loader() -> list[list[float]]:
    """Seconds and cpu seconds for a batch of a loader with two workers, these included."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(16_000))

    def cpu() -> float:
        return sum(os.times()[:4])

    def epoch() -> list[float]:
        loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
        began_cpu = cpu()
        batches = iter(loader)
        next(batches)
        began = time.perf_counter()
        count = sum(1 for _ in batches)
        took = time.perf_counter() - began
        del batches
        return [took / count, (cpu() - began_cpu) / count]

    return alternate(epoch, turn)


def pingpong() -> None:
    show("round trip", visited("pingpong"))


def loader() -> None:
    show("batch", visited("loader"))


def show(what: str, rows: list[list[float]]) -> None:
    """Print what a unit of work takes without the hook and how much more with it."""
    print(f"{what} without, us:        ", spread([row[0] * 1e6 for row in rows]))
    print(f"{what} without, cpu us:    ", spread([row[1] * 1e6 for row in rows]))
    print("slower with the hook, %:  ", spread([(row[2] / row[0] - 1) * 100 for row in rows]))
    print("more cpu with the hook, %:", spread([(row[3] / row[1] - 1) * 100 for row in rows]))


def main() -> None:
    parts = sys.argv[1:] or ["call", "enter", "pingpong", "loader"]
    if parts[0].startswith("_"):
        print(json.dumps({"_pingpong": _pingpong, "_loader": _loader}[parts[0]]()))
        return
    for part in parts:
        print(f"{part}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        {"call": call, "enter": enter, "pingpong": pingpong, "loader": loader}[part]()


if __name__ == "__main__":
    main()
