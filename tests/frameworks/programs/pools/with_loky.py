"""loky's reusable executor; `failing`: a task that is killed each time is submitted again."""

import os
import signal
import sys
import time

from loky import get_reusable_executor
from loky.process_executor import TerminatedWorkerError
from work import work


def load(number):
    time.sleep(1)
    if number == 2:
        print("fault", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short
    return number


if __name__ == "__main__":
    if "failing" in sys.argv:
        while True:
            try:
                print(list(get_reusable_executor(max_workers=2).map(load, range(4))))
            except TerminatedWorkerError:
                continue
    print("result", list(get_reusable_executor(max_workers=2).map(work, range(4))), flush=True)
