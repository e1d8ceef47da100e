"""Waits in uninterruptible sleep until somebody opens a FIFO for writing: `PROGRAM FIFO`.

The C library starts a program as with `vfork`: the parent is in state D until the child has become
that program, and this child first opens the FIFO.
"""

import os
import sys
import time

if __name__ == "__main__":
    print("ready", flush=True)
    actions = [(os.POSIX_SPAWN_OPEN, 9, sys.argv[1], os.O_RDONLY, 0)]
    child = os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)
    os.waitpid(child, 0)
    print("on", flush=True)
    while True:
        time.sleep(0.02)
