"""Stand-in for the batch system on a workstation: announces the end of the slot."""
import logging
import os
import signal
import time

log = logging.getLogger("tagger.partition")


def step_members(root):
    members, stack = [], [root]
    while stack:
        pid = stack.pop()
        members.append(pid)
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                stack.extend(int(p) for p in f.read().split())
        except OSError:
            pass
    return [m for m in members if m != os.getpid()]


def notify_step(root, after):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(after)
    members = step_members(root)
    log.info("time limit ahead: signal USR1 to %d processes of the step", len(members))
    for pid in members:
        try:
            os.kill(pid, signal.SIGUSR1)
        except ProcessLookupError:
            pass
    time.sleep(3600)
