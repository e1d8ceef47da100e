"""Attach to shared memory from another program, which removes it when it exits.

Before Python 3.13 each program that attaches registers the segment with its own resource tracker,
which removes the segment when that program exits. This process then uses memory without a name.
"""

import subprocess
import sys
import time
from multiprocessing import shared_memory

import torch

from mpwatch.demo.bounds import begin, mended

EVALUATE = """
import sys
from multiprocessing import shared_memory
segment = shared_memory.SharedMemory(name=sys.argv[1])
print(sum(segment.buf[:10]))
segment.close()
"""
LEAVE_IT = """
from multiprocessing import resource_tracker
resource_tracker.unregister(segment._name, "shared_memory")
"""


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    segment = shared_memory.SharedMemory(create=True, size=1 << 20)
    weights = torch.frombuffer(segment.buf, dtype=torch.float32)
    weights.fill_(1.0)
    evaluate = EVALUATE + LEAVE_IT if mended() else EVALUATE
    ready = False
    while time.monotonic() < until_s:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", evaluate, segment.name], check=False
        )
        print(f"evaluation ended with {done.returncode}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        weights += 1
        time.sleep(3)
    segment.unlink()


if __name__ == "__main__":
    main()
