"""Asynchronous RL fine-tuning of a tiny policy with off-policy control."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from rollout import prompt_feeder, rollout_worker

log = logging.getLogger("async_rl")


class Policy(nn.Module):
    def __init__(self, vocab=1000, d=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.head = nn.Linear(d, vocab)

    def logprob(self, toks):
        h = self.emb(toks[:, :-1])
        lp = self.head(h).log_softmax(-1)
        return lp.gather(-1, toks[:, 1:].unsqueeze(-1)).squeeze(-1).sum(-1)


class AsyncTrainer:
    def __init__(self, args, traj_q, version):
        self.args, self.traj_q, self.version = args, traj_q, version
        self.policy = Policy()
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=1e-4)

    def next_group(self):
        while True:
            g = self.traj_q.get()
            lag = self.version.value - g.policy_version
            if lag <= self.args.max_off_policy or g.refreshed:
                return g
            log.debug("group %d is %d versions old, back for rescoring", g.prompt_id, lag)
            g.refreshed += 1
            g.policy_version = self.version.value
            self.traj_q.put(g)

    def step(self):
        groups = [self.next_group() for _ in range(self.args.groups_per_step)]
        loss = 0.0
        for g in groups:
            adv = torch.tensor(g.rewards) - sum(g.rewards) / len(g.rewards)
            loss = loss - (self.policy.logprob(torch.tensor(g.tokens)) * adv).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.version.value += 1
        return loss.item()


class BoundedChannel:
    """put/get with a bound, the interface of the RPC queue that we use in the cluster."""

    def __init__(self, size):
        self.items = mp.Queue(maxsize=size)

    def put(self, x):
        self.items.put(x)

    def get(self):
        return self.items.get()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--queue-size", type=int, default=4)
    ap.add_argument("--groups-per-step", type=int, default=2)
    ap.add_argument("--max-off-policy", type=int, default=2)
    ap.add_argument("--steps", type=int, default=500)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)

    prompt_q, traj_q = mp.Queue(maxsize=6), BoundedChannel(args.queue_size)
    version, stop = mp.Value("i", 0), mp.Event()
    procs = [mp.Process(target=prompt_feeder, args=(prompt_q, 10_000, 30), name="feeder", daemon=True)]
    procs += [mp.Process(target=rollout_worker, args=(i, prompt_q, traj_q, version, stop), name=f"rollout-{i}",
                         daemon=True) for i in range(args.workers)]
    for p in procs:
        p.start()
    trainer = AsyncTrainer(args, traj_q, version)
    for s in range(args.steps):
        t0 = time.time()
        loss = trainer.step()
        if s > 12:
            time.sleep(0.8)  # weight push to the samplers
        log.info("step %d loss %.3f %.2fs", s, loss, time.time() - t0)
    stop.set()


if __name__ == "__main__":
    main()
