"""Prints, for each line it reads, its allocated blocks and its callbacks of `atexit`."""

import atexit
import gc
import sys

print("ready", flush=True)
while sys.stdin.readline():
    gc.collect()
    print(sys.getallocatedblocks(), atexit._ncallbacks(), flush=True)
