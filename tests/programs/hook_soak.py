"""All that a job may do around a fork, for a time: `hook_soak.py with|without SECONDS`.

Three threads start children, each in its own way, a fourth sends tensors to a process and back, and
the main thread makes DataLoaders with new workers again and again. At intervals all pause, and it
prints its resources as JSON.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, TensorDataset

PATIENCE_S = 90.0
"""Seconds after which a child is called stalled."""
LOST_S = 20.0
"""Seconds after which a batch is called lost. A program that forks from several threads at once
loses one in some thousands, without the hook as well (CPython 3.11, torch 2.13): main waits for
it, the workers for work."""
PAUSE_S = 0.05
EVERY_S = 10.0
"""Seconds between two pauses."""

done: dict[str, int] = {}
hung: list[str] = []
stop = threading.Event()


def wait_for(pid: int, what: str) -> None:
    """Reap a child, or note that it is stalled."""
    end_s = time.monotonic() + PATIENCE_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end_s:
            hung.append(f"{what} {pid}")
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return
        time.sleep(0.001)


def is_there(pid: int | None) -> bool:
    """Whether a process still runs a while later."""
    end_s = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > end_s:
            return True
        time.sleep(0.001)
    return False


def fork_bare() -> None:
    """Fork outside of multiprocessing."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    wait_for(pid, "fork")


def start_command() -> None:
    """Run a program that is not Python."""
    subprocess.run(["true"], check=True, timeout=PATIENCE_S)


def answer(queue: multiprocessing.SimpleQueue[int]) -> None:
    queue.put(os.getpid())


def start_process() -> None:
    """Start a process of multiprocessing that does something which is recorded."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=answer, args=(queue,))
    process.start()
    if queue._reader.poll(PATIENCE_S):  # type: ignore[attr-defined]
        assert queue.get() == process.pid
    process.join(PATIENCE_S)
    # A thread that starts a process reaps those of other threads, whose `join` then returns without
    # a code.
    if process.exitcode is None and is_there(process.pid):
        hung.append(f"process {process.pid}")
        process.kill()
        process.join()
    elif process.exitcode:
        hung.append(f"process {process.pid} ended with {process.exitcode}")
    queue.close()


def echo(inbox: multiprocessing.Queue[object], outbox: multiprocessing.Queue[object]) -> None:
    while (item := inbox.get()) is not None:
        outbox.put(item)


def repeat(step: Callable[[], None]) -> Callable[[], None]:
    """Repeat a step in a thread."""

    def work() -> None:
        while not stop.is_set():
            step()
            done[step.__name__] = done.get(step.__name__, 0) + 1
            stop.wait(PAUSE_S)

    return work


def play() -> None:
    """Load data with new workers once."""
    data = TensorDataset(torch.arange(64.0).reshape(16, 4))
    loader = DataLoader(
        data, batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=LOST_S
    )
    try:
        assert sum(float(batch.sum()) for (batch,) in loader) == 2016.0
    except RuntimeError as error:
        if "timed out" not in str(error):
            raise
        done["lost"] = done.get("lost", 0) + 1
    done["loaders"] = done.get("loaders", 0) + 1


def descriptors() -> int:
    """Number of open descriptors, once observers have disconnected."""
    time.sleep(0.02)
    return len(os.listdir("/proc/self/fd")) - 1


def held(since_s: float) -> dict[str, object]:
    """The resources of this process while its threads pause."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    return {
        "at_s": round(time.monotonic() - since_s, 1),
        "rss_kib": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "fds": min(descriptors() for _ in range(40)),
        "hung": hung,
        **done,
    }


def main() -> None:
    has_hook, seconds = sys.argv[1] == "with", float(sys.argv[2])
    if has_hook:
        import mpwatch

        assert mpwatch.instrument()
    torch.set_num_threads(1)
    context = torch.multiprocessing.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    partner = context.Process(target=echo, args=(inbox, outbox))
    partner.start()

    def ping() -> None:
        inbox.put(torch.ones(4))
        assert float(outbox.get(timeout=PATIENCE_S).sum()) == 4.0

    print("ready", flush=True)
    began_s = time.monotonic()
    while (now_s := time.monotonic()) - began_s < seconds:
        stop.clear()
        threads = [
            threading.Thread(target=repeat(step))
            for step in (fork_bare, start_command, start_process, ping)
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() - now_s < min(EVERY_S, seconds / 4):
            play()
        stop.set()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
            if thread.is_alive():
                hung.append(thread.name)
        print(json.dumps(held(began_s)), flush=True)
    inbox.put(None)
    partner.join(PATIENCE_S)
    print("end", partner.exitcode, len(multiprocessing.active_children()), flush=True)


if __name__ == "__main__":
    main()
