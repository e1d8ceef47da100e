import ctypes
import logging
import os
import signal
import time

import numpy as np
import torch
from torch import nn

log = logging.getLogger("launcher.actor")

PR_SET_PDEATHSIG = 1


def die_with_parent():
    """No orphans on the node when the learner is killed by the batch system."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Actor:
    def __init__(self, ident, outbox):
        self.ident = ident
        self.outbox = outbox
        self.rng = np.random.default_rng(ident)
        self.policy = nn.Linear(12, 3)

    def episode(self, length=20):
        obs = self.rng.standard_normal((length, 12), dtype=np.float32)
        with torch.no_grad():
            actions = self.policy(torch.from_numpy(obs)).argmax(1).numpy()
        time.sleep(0.4)
        return obs, actions, float(self.rng.standard_normal())


def actor_main(ident, outbox, ready):
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    actor = Actor(ident, outbox)
    ready.set()
    log.info("actor %d ready, pid %d", ident, os.getpid())
    while True:
        outbox.put(actor.episode())
