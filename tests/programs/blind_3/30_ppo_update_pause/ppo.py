import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

torch.set_num_threads(1)
log = logging.getLogger("ppo")


def env_worker(conn, seed):
    g = torch.Generator().manual_seed(seed)
    state = torch.randn(24, generator=g)
    while True:
        action = conn.recv()
        if action is None:
            return
        time.sleep(0.01)
        state = 0.9 * state + 0.1 * torch.randn(24, generator=g)
        conn.send((state.numpy(), float(-(state[:4].numpy() - action).__abs__().sum())))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.mu, self.v = nn.Linear(128, 4), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.v(h).squeeze(-1)


def update(policy, opt, obs, ret, seconds):
    end, epochs = time.time() + seconds, 0
    while time.time() < end:
        mu, v = policy(obs)
        loss = (v - ret).pow(2).mean() + 0.1 * mu.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        epochs += 1
    return loss.item(), epochs


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--envs", type=int, default=3)
    ap.add_argument("--n-steps", type=int, default=100)
    ap.add_argument("--update-seconds", type=float, default=6)
    ap.add_argument("--max-time", type=float, default=85)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    conns, procs = [], []
    for r in range(args.envs):
        a, b = mp.Pipe()
        p = mp.Process(target=env_worker, args=(b, r), name=f"env-{r}", daemon=True)
        p.start()
        conns.append(a)
        procs.append(p)
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    start, it = time.time(), 0
    obs = torch.zeros(args.envs, 24)
    while time.time() - start < args.max_time:
        all_obs, all_rew = [], []
        for _ in range(args.n_steps):
            with torch.no_grad():
                mu, _ = policy(obs)
            for c, a in zip(conns, mu.numpy()):
                c.send(a)
            res = [c.recv() for c in conns]
            obs = torch.stack([torch.from_numpy(s) for s, _ in res])
            all_obs.append(obs)
            all_rew.append(torch.tensor([r for _, r in res]))
        ret = torch.stack(all_rew).flip(0).cumsum(0).flip(0).flatten() / args.n_steps
        loss, epochs = update(policy, opt, torch.cat(all_obs), ret, args.update_seconds)
        it += 1
        log.info("iteration %d loss %.3f, %d passes", it, loss, epochs)
    for c in conns:
        c.send(None)


if __name__ == "__main__":
    main()
