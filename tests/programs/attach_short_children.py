"""Starts children for ever, each runs for a while: `attach_short_children.py EVERY_S LIFE_S`.

At most `CHILDREN` run at a time. With `non-python` as a third word each child executes `sleep`
instead.
"""

import collections
import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
CHILDREN = 40


def live(life_s: float) -> None:
    """Run as a child."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if sys.argv[3:] == ["non-python"]:
        os.execvp("sleep", ["sleep", str(life_s)])
    end_s = time.monotonic() + life_s
    while time.monotonic() < end_s:
        time.sleep(0.05)
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    every_s, life_s = float(sys.argv[1]), float(sys.argv[2])
    starts_s: collections.deque[float] = collections.deque(maxlen=CHILDREN)
    print("ready", flush=True)
    while True:
        if len(starts_s) < CHILDREN or time.monotonic() > starts_s[0] + life_s:
            starts_s.append(time.monotonic())
            if os.fork() == 0:
                live(life_s)
        time.sleep(every_s)
