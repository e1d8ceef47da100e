"""A Pool whose workers have a hook and whose parent has none: prints `ready` and the pids."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from typing import Any

import mpwatch


def enter(door: Any) -> None:
    mpwatch.instrument()
    door.wait()


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1] if len(sys.argv) > 1 else "fork")
    door = context.Barrier(3)
    with context.Pool(2, initializer=enter, initargs=(door,)):
        door.wait()
        print("ready", *[child.pid for child in multiprocessing.active_children()], flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
