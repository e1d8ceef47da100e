"""A job of fixed length whose output does not depend on time: `hook_disk.py hook|bare TICKS`.

It puts and gets, raises through a wrapper, forks and waits for a child, and prints each tick.
Without the hook it does not pause. The hook's thread removes its files when a process exits. The
hook waits 2 s for that; here it waits for longer, so that the files are gone whatever the load.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from multiprocessing.queues import SimpleQueue

PAUSE_S = 0.02
EXIT_S = 30.0


def answer(asked: SimpleQueue[int], answered: SimpleQueue[int]) -> None:
    """Run as a child: answer until a 0 arrives."""
    while number := asked.get():
        answered.put(number + 1)
    wait_for_removal()


def wait_for_removal() -> None:
    """Make the hook, if there is one, wait at the exit until its files are removed."""
    server = sys.modules.get("mpwatch.hook.transport.server")
    if server is not None:
        vars(server)["END_S"] = EXIT_S


def main() -> None:
    is_hooked = sys.argv[1] == "hook"
    if is_hooked:
        import mpwatch

        assert mpwatch.instrument()
    ticks = int(sys.argv[2])
    context = multiprocessing.get_context("fork")
    children = []
    total = 0
    for tick in range(1, ticks + 1):
        if tick in (10, ticks // 2):  # the second while the disk is frozen
            asked, answered = context.SimpleQueue(), context.SimpleQueue()
            child = context.Process(target=answer, args=(asked, answered))
            child.start()
            children.append((child, asked, answered))
        for _, asked, answered in children:
            asked.put(tick)
            total += answered.get()
        if tick % 20 == 0:
            try:
                children[0][1].put(threading.Lock())
            except TypeError as error:
                print(error)
        print("tick", tick, total, flush=True)
        time.sleep(PAUSE_S if is_hooked else 0)
    for child, asked, _ in children:
        asked.put(0)
        child.join()
        print("child", child.exitcode, flush=True)
    wait_for_removal()


if __name__ == "__main__":
    main()
