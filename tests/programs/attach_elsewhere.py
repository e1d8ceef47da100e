"""A program whose environment is not what the kernel shows of it, in one of three ways."""

import ctypes
import os
import sys
import time

WAY, FOLDER = sys.argv[1], sys.argv[2]

if WAY == "sets" and os.environ.pop("XDG_RUNTIME_DIR", ""):
    os.execv(sys.executable, [sys.executable, *sys.argv])  # started without it, then set
if WAY == "sets":
    os.environ["XDG_RUNTIME_DIR"] = FOLDER
elif WAY == "overwrites":  # as setproctitle does with the memory of arguments and environment
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start, env_end of proc(5)
    os.environ["XDG_RUNTIME_DIR"] = FOLDER
    # The C library and `os.environ` must have copies by now.
    for name, value in list(os.environ.items()):
        os.environ[name] = value
    ctypes.memset(start, 0, end - start)
elif WAY == "drops":
    import mpwatch

    mpwatch.instrument()
    time.sleep(0.3)
    os.setgid(1001)
    os.setuid(1001)
print("ready", flush=True)
while True:
    time.sleep(0.005)
