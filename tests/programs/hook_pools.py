"""Pools of processes and a queue, each with outstanding items: prints `ready` and waits."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import mpwatch


def stay(door: Any) -> None:
    door.wait()


def main() -> None:
    mpwatch.instrument()
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        door = manager.Event()
        pool = context.Pool(2)
        pool.map_async(stay, [door] * 5, chunksize=1)
        executor = ProcessPoolExecutor(1, mp_context=context)
        calls = [executor.submit(stay, door) for _ in range(4)]
        queue = context.Queue(7)
        for number in range(3):
            queue.put(number)
        print("ready", flush=True)
        signal.pause()
        assert calls


if __name__ == "__main__":
    main()
