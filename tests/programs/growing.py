"""One resource that grows in one way, by the first argument; `--seconds N` limits it.

The ways that are not faults: `cache` fills up and stays, `sawtooth` collects and clears, `newest`
removes what it does not need any more, `upfront` takes the results of tasks that it has put before.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty

MIB = 1 << 20
STEP_S = 0.1


def steps(seconds: float) -> Iterator[int]:
    """One step each `STEP_S`; prints `ready` after the first."""
    end_s = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end_s:
        yield step
        step += 1
        if step == 1:
            print("ready", flush=True)
        time.sleep(STEP_S)


def leak_pipes(seconds: float) -> None:
    kept: list[tuple[int, int]] = []
    kept.extend(os.pipe() for step in steps(seconds) if step % 4 == 0)


def pipes(seconds: float) -> None:
    """A worker makes pipes and keeps them."""
    worker = multiprocessing.Process(target=leak_pipes, args=(seconds,), daemon=True)
    worker.start()
    worker.join()


def files(seconds: float) -> None:
    """The same file is opened again and again."""
    kept: list[object] = []
    for step in steps(seconds):
        if step % 4 == 0:
            kept.append(open(__file__))  # noqa: SIM115, PERF401 - never closed


def sockets(seconds: float) -> None:
    """A connection for each request to a server that never closes any."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)
    kept: list[socket.socket] = []
    kept.extend(
        socket.create_connection(server.getsockname()) for step in steps(seconds) if step % 4 == 0
    )


def memory(seconds: float) -> None:
    """A list of results that is only added to."""
    kept: list[bytearray] = []
    kept.extend(bytearray(b"x") * (MIB // 2) for _ in steps(seconds))


def threads(seconds: float) -> None:
    """A heartbeat thread for each task, and none ends."""
    end = threading.Event()

    def heartbeat() -> None:
        end.wait()

    for step in steps(seconds):
        if step % 4 == 0:
            threading.Thread(target=heartbeat, daemon=True).start()


def children(seconds: float) -> None:
    """A helper process for each task, and none ends."""
    kept: list[subprocess.Popen[bytes]] = []
    try:
        kept.extend(subprocess.Popen(["sleep", "300"]) for step in steps(seconds) if step % 6 == 0)
    finally:
        for each in kept:
            each.kill()
            each.wait()


def consume(queue: "multiprocessing.Queue[bytes]") -> None:
    while True:
        queue.get()
        time.sleep(0.5)


def queue(seconds: float) -> None:
    """Items are put into a queue without a bound faster than they are taken out."""
    items: multiprocessing.Queue[bytes] = multiprocessing.Queue()
    multiprocessing.Process(target=consume, args=(items,), daemon=True).start()
    for _ in steps(seconds):
        items.put(os.urandom(MIB // 2))
    items.cancel_join_thread()


def take_slowly(queue: "multiprocessing.Queue[dict[str, object]]") -> None:
    while True:
        queue.get()
        time.sleep(0.05)


def backlog(seconds: float) -> None:
    """As `queue`, with items so small that they hardly show in its memory."""
    items: multiprocessing.Queue[dict[str, object]] = multiprocessing.Queue()
    multiprocessing.Process(target=take_slowly, args=(items,), daemon=True).start()
    for step in steps(seconds):
        for number in range(40):
            items.put({"step": step, "number": number, "text": "x" * 100})
    items.cancel_join_thread()


def answer(
    tasks: "multiprocessing.Queue[str]", results: "multiprocessing.Queue[dict[str, float]]"
) -> None:
    # Ends with its parent: a forked child holds the other ends of both pipes itself.
    results.cancel_join_thread()
    while (parent := multiprocessing.parent_process()) is not None and parent.is_alive():
        with contextlib.suppress(Empty):
            tasks.get(timeout=1.0)
        time.sleep(0.02)
        results.put(dict.fromkeys("abcdefgh", 0.5))


def upfront(seconds: float) -> None:
    """All tasks are put into a queue at once, and results are collected one by one."""
    tasks: multiprocessing.Queue[str] = multiprocessing.Queue()
    results: multiprocessing.Queue[dict[str, float]] = multiprocessing.Queue()
    multiprocessing.Process(target=answer, args=(tasks, results), daemon=True).start()
    for number in range(60_000):
        tasks.put(f"{number:0200d}")
    kept = [results.get() for _ in range(2)]
    for _ in steps(seconds):
        kept.extend(results.get() for _ in range(2))
    tasks.cancel_join_thread()


def shm(seconds: float) -> None:
    """A block of shared memory for each message, closed and never unlinked."""
    from multiprocessing import shared_memory

    names = []
    for step in steps(seconds):
        if step % 4 == 0:
            block = shared_memory.SharedMemory(create=True, size=MIB // 8)
            assert block.buf is not None
            block.buf[:] = bytes(MIB // 8)
            names.append(block.name)
            block.close()
    for name in names:
        shared_memory.SharedMemory(name).unlink()


def stage(seconds: float, kept: int, size: int) -> None:
    """Copy shards of a size into /dev/shm, of which those of so many steps stay."""
    with tempfile.TemporaryDirectory(prefix="stage_", dir="/dev/shm") as folder:
        for step in steps(seconds):
            if step % 2 == 0:
                with open(f"{folder}/shard-{step:06}.npy", "wb") as shard:
                    shard.write(bytes(size))
            if step >= kept and step % 2 == 0:
                os.unlink(f"{folder}/shard-{step - kept:06}.npy")


def staged(seconds: float) -> None:
    """Shards are copied into /dev/shm, and nothing removes them."""
    stage(seconds, 1 << 30, MIB // 4)


def newest(seconds: float) -> None:
    """Shards are copied into /dev/shm, and the newest twenty stay."""
    stage(seconds, 40, MIB)


def tmp(seconds: float) -> None:
    """A temporary file for each step, never removed by the program: set TMPDIR."""
    for step in steps(seconds):
        if step % 4 == 0:
            descriptor, _ = tempfile.mkstemp()
            os.write(descriptor, bytes(4096))
            os.close(descriptor)


def cache(seconds: float) -> None:
    """Results by key: each key is computed once, there are so many, and then there are no more."""
    known: dict[int, bytearray] = {}
    state = 1
    for _ in steps(seconds):
        for _ in range(4):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            known.setdefault((state >> 8) % 300, bytearray(b"x") * (MIB // 4))


def sawtooth(seconds: float) -> None:
    """Results are collected for ten seconds, saved and cleared; files and memory."""
    kept: list[object] = []
    for step in steps(seconds):
        kept.append(bytearray(b"x") * MIB)
        if step % 4 == 0:
            kept.append(open(__file__))  # noqa: SIM115 - closed when the list is cleared
        if step % 100 == 99:
            kept.clear()


WAYS: dict[str, Callable[[float], None]] = {
    way.__name__: way
    for way in (
        *(pipes, files, sockets, memory, threads, children, queue, backlog, shm, staged, tmp),
        *(cache, sawtooth, newest, upfront),
    )
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    # So that children end with it: multiprocessing terminates its own when the interpreter exits.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    WAYS[options.way](options.seconds)
    sys.exit(0)
