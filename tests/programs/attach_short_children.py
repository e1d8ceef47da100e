"""Starts children for ever, each runs for a while: `attach_short_children.py EVERY_S LIFE_S`.

With `non-python` as a third word each child executes `sleep` instead.
"""

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1


def live(life_s: float) -> None:
    """Run as a child."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if sys.argv[3:] == ["non-python"]:
        os.execvp("sleep", ["sleep", str(life_s)])
    end_s = time.monotonic() + life_s
    while time.monotonic() < end_s:
        time.sleep(0.01)
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    every_s, life_s = float(sys.argv[1]), float(sys.argv[2])
    print("ready", flush=True)
    while True:
        if os.fork() == 0:
            live(life_s)
        time.sleep(every_s)
