"""Lose the main process to a SIGKILL of unknown origin.

A user, a scheduler at its time limit or a container that is stopped sends it: the job ends in the
middle of a step, with exit status 137 and no message. Memory was not short.
"""

import os
import signal
import subprocess
import sys
import time

import torch

from mpwatch.demo.bounds import begin, mended

KILLED_AFTER_S = 12
SCHEDULER = """
import os, sys, time
time.sleep(float(sys.argv[2]))
os.kill(int(sys.argv[1]), int(sys.argv[3]))
"""
STARTER = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


def start_scheduler():
    """A process outside the job that will kill it."""
    how = signal.SIGTERM if mended() else signal.SIGKILL
    scheduler = [sys.executable, "-c", SCHEDULER, str(os.getpid()), str(KILLED_AFTER_S)]
    command = [sys.executable, "-c", STARTER, *scheduler, str(int(how))]
    subprocess.run(command, check=True)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    weights = torch.zeros(1000)
    start_scheduler()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        weights += 1
        time.sleep(0.1)


if __name__ == "__main__":
    main()
