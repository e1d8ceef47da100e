"""Asynchronous PPO in the style of IMPALA: runners play, one learner updates."""
import argparse
import logging
import multiprocessing as mp
import multiprocessing.connection
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from memory import PolicyMemory
from runner import runner

log = logging.getLogger("impala")


class Learner:
    def __init__(self, epochs, batch):
        self.policy = nn.Linear(8, 1, bias=False)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=3e-3)
        self.memory, self.epochs, self.batch = PolicyMemory(), epochs, batch

    def save_all(self, traj):
        self.memory.save_all(traj)

    def update(self):
        data = TensorDataset(*self.memory.get_all_items())
        for _ in range(self.epochs):
            for s, a, r, lp in DataLoader(data, batch_size=self.batch, shuffle=True):
                logit = self.policy(s)[:, 0]
                new = -nn.functional.softplus(torch.where(a == 1, -logit, logit))
                ratio = (new - lp).exp()
                adv = r - r.mean()
                loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
        return loss.item()

    def weights(self):
        return self.policy.weight.detach().flatten().tolist()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--runners", type=int, default=3)
    ap.add_argument("--n-update", type=int, default=256)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--updates", type=int, default=5000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    learner, conns = Learner(args.epochs, 32), []
    for i in range(args.runners):
        a, b = mp.Pipe()
        mp.Process(target=runner, args=(i, b, args.n_update), name=f"runner-{i}", daemon=True).start()
        a.send(learner.weights())
        conns.append(a)
    for n in range(args.updates):
        ready = mp.connection.wait(conns)
        conn = ready[n % len(ready)]
        t0 = time.time()
        learner.save_all(conn.recv())
        loss = learner.update()
        conn.send(learner.weights())
        log.info("update %d loss %.4f %.2fs", n, loss, time.time() - t0)


if __name__ == "__main__":
    main()
