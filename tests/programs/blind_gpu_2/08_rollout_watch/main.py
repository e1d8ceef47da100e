"""Learner with three rollout workers under a heartbeat supervisor."""
import argparse
import logging
import os
import tempfile
import time
from multiprocessing.connection import wait

import torch
import torch.multiprocessing as mp

from heartbeat import Supervisor
from rollout import Policy, device, worker_main


class Learner:
    def __init__(self, conns):
        self.conns = conns
        self.policy = Policy().to(device)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.updates = 0

    def learn(self, obs, actions):
        obs = torch.from_numpy(obs).to(device).flatten(0, 1)
        actions = torch.from_numpy(actions).to(device).flatten()
        logits, value = self.policy(obs)
        target = obs.mean(-1)
        logp = torch.distributions.Categorical(logits=logits).log_prob(actions)
        loss = -(logp * (target - value.detach())).mean() + (value - target).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        return loss.item()

    def weights(self):
        return {k: v.cpu().numpy() for k, v in self.policy.state_dict().items()}

    def serve(self, until):
        tick, loss = time.monotonic(), 0.0
        while self.conns and time.monotonic() < until:
            for conn in wait(list(self.conns), timeout=1.0):
                worker = self.conns[conn]
                try:
                    loss = self.learn(*conn.recv())
                    conn.send(self.weights())
                except (EOFError, OSError):
                    logging.error("lost the connection to worker %d", worker)
                    del self.conns[conn]
            if time.monotonic() - tick > 5:
                tick = time.monotonic()
                logging.info("updates %d loss %.4f workers %d", self.updates, loss, len(self.conns))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--envs", type=int, default=128)
    p.add_argument("--horizon", type=int, default=64)
    p.add_argument("--heartbeat-every", type=int, default=5)
    p.add_argument("--heartbeat-timeout", type=float, default=9.0)
    p.add_argument("--walltime", type=float, default=125.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    cfg = {"envs": args.envs, "horizon": args.horizon, "heartbeat_every": args.heartbeat_every,
           "walltime": args.walltime}
    until = time.monotonic() + args.walltime
    ctx = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="beats_") as beat_dir:
        procs, conns = {}, {}
        for i in range(args.workers):
            ours, theirs = ctx.Pipe()
            procs[i] = ctx.Process(target=worker_main, args=(i, theirs, cfg, beat_dir), daemon=True)
            procs[i].start()
            theirs.close()
            conns[ours] = i
        Supervisor(procs, beat_dir, args.heartbeat_timeout).start()
        Learner(conns).serve(until)
        for proc in procs.values():
            proc.terminate()
    os._exit(0)


if __name__ == "__main__":
    main()
