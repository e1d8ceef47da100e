"""Children that cannot import mpwatch: `hook_children.py METHOD`, to be run with `python -S`."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from typing import Any

OURS = {"mpwatch", "path_loader.py"}
"""Names from which the hook could be imported."""


def child(door: multiprocessing.SimpleQueue[str], back: multiprocessing.SimpleQueue[str]) -> None:
    found = importlib.util.find_spec("mpwatch")
    ours = [
        path for path in sys.path if OURS & {*(os.listdir(path) if os.path.isdir(path) else ())}
    ]
    back.put(f"child {found} {ours} {'_mpwatch_hook' in sys.modules}")
    door.get()


def main() -> None:
    context: Any = multiprocessing.get_context(sys.argv[1])
    door, back = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=child, args=(door, back))
    process.start()
    print(back.get())
    print("ready", flush=True)
    sys.stdin.readline()
    door.put("go")
    process.join(30)
    print("exit", process.exitcode, flush=True)


if __name__ == "__main__":
    main()
