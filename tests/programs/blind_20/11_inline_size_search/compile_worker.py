"""Compilation worker: evaluates an inlining policy on a module and reports its size."""
import logging
import os
import signal
import time

import torch
from torch import nn

log = logging.getLogger("compile_worker")


class PolicyNet(nn.Module):
    def __init__(self, features=16, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 2))

    def forward(self, x):
        return self.body(x)


class InliningRunner:
    """Stands for one clang instance with the trained policy linked in."""

    def __init__(self, worker_id, seed):
        torch.set_num_threads(1)
        self.worker_id = worker_id
        self.policy = PolicyNet()
        self.policy_version = 0
        self.gen = torch.Generator().manual_seed(seed + worker_id)

    def load_policy(self, version, blob):
        self.policy.load_state_dict({k: torch.tensor(v) for k, v in blob.items()})
        self.policy_version = version
        return version

    def compile_module(self, module, call_sites, want_version):
        feats = torch.randn(call_sites, 16, generator=self.gen)
        t0 = time.monotonic()
        size = float(call_sites) * 40.0
        with torch.no_grad():
            while time.monotonic() - t0 < 0.15:
                decisions = self.policy(feats).argmax(-1)
                size = 40.0 * call_sites - 3.0 * float(decisions.sum())
        return {"module": module, "size": size, "worker": self.worker_id,
                "stale": self.policy_version != want_version}


def serve(worker_id, conn, seed, walltime):
    signal.alarm(walltime)
    runner = InliningRunner(worker_id, seed)
    log.info("worker %d ready, pid %d", worker_id, os.getpid())
    while True:
        msg = conn.recv()
        if msg is None:
            break
        call_id, method, args = msg
        try:
            conn.send((call_id, True, getattr(runner, method)(*args)))
        except Exception as err:
            conn.send((call_id, False, repr(err)))
