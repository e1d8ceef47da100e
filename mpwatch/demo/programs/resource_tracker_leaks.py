"""Kill the main process of a spawned job.

Its semaphores have names. Only the resource tracker is left to remove them; it runs as long as a
child does, and then reports "leaked semaphore objects". The report is a symptom of the kill.
"""

import os
import signal
import time

import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

KILLED_AFTER_S = 6
SURVIVE_S = 40


def work(queue, started):
    started.set()
    queue.get(timeout=150)


def main():
    seconds = begin(__doc__, outlive_s=SURVIVE_S)
    spawn = mp.get_context("spawn")
    queue, started = spawn.Queue(), spawn.Event()
    worker = spawn.Process(target=work, args=(queue, started))
    worker.start()
    started.wait()
    print("ready", flush=True)
    time.sleep(min(KILLED_AFTER_S, seconds))
    if mended():
        queue.put("the end")
        worker.join()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
