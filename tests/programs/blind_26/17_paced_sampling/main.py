"""Asynchronous policy training with bounded staleness."""
import argparse
import logging
import time

import torch
import torch.multiprocessing as mp

from pacing import Admission
from policy import Policy
from sampler import run_sampler

log = logging.getLogger("learner")


class Learner:
    def __init__(self, shared, admission, groups, args):
        self.shared, self.admission, self.groups, self.args = shared, admission, groups, args
        self.policy = Policy()
        self.policy.load_state_dict(shared.state_dict())
        self.optim = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.ready = {}
        self.next_group = 0

    def next_batch(self):
        batch = []
        while len(batch) < self.args.groups_per_batch:
            while self.next_group not in self.ready:
                number, *rest = self.groups.get()
                self.ready[number] = rest
            batch.append(self.ready.pop(self.next_group))
            self.next_group += 1
        return batch

    def train(self, batch):
        for _ in range(self.args.epochs):
            loss = 0.0
            for _, obs, act, ret in batch:
                obs, act, ret = torch.from_numpy(obs), torch.from_numpy(act), torch.from_numpy(ret)
                advantage = (ret - ret.mean()) / (ret.std() + 1e-6)
                loss = loss - (self.policy(obs).log_prob(act) * advantage).mean()
            self.optim.zero_grad()
            (loss / len(batch)).backward()
            self.optim.step()

    def publish(self):
        self.shared.load_state_dict(self.policy.state_dict())
        self.admission.advance()

    def run(self):
        for step in range(self.args.steps):
            begin = time.monotonic()
            batch = self.next_batch()
            waited = time.monotonic() - begin
            self.train(batch)
            lag = max(step - version for version, *_ in batch)
            self.publish()
            reward = sum(float(b[3].mean()) for b in batch) / len(batch)
            log.info("step %d reward %.3f staleness %d wait %.1fs train %.1fs samplers waited %s", step, reward, lag,
                     waited, time.monotonic() - begin - waited,
                     " ".join("%.0fs" % self.admission.waited[i] for i in range(self.args.samplers)))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--samplers", type=int, default=4)
    p.add_argument("--groups-per-batch", type=int, default=4)
    p.add_argument("--group-size", type=int, default=32)
    p.add_argument("--max-steps-off-policy", type=int, default=1)
    p.add_argument("--long-fraction", type=float, default=0.12)
    p.add_argument("--epochs", type=int, default=400)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    ctx = mp.get_context("fork")
    shared = Policy().share_memory()
    admission = Admission(ctx, args.groups_per_batch, args.max_steps_off_policy)
    groups = ctx.Queue()
    for i in range(args.samplers):
        ctx.Process(target=run_sampler, args=(i, shared, admission, groups, args), daemon=True,
                    name="sampler-%d" % i).start()
    Learner(shared, admission, groups, args).run()
