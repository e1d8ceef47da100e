import argparse
import logging
import multiprocessing as mp
import tempfile
import time

import torch
import torch.nn.functional as F

from actor import Policy, actor_main

log = logging.getLogger("learner")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--horizon", type=int, default=60)
    p.add_argument("--episodes-per-update", type=int, default=12)
    p.add_argument("--updates", type=int, default=100000)
    p.add_argument("--heartbeat", type=float, default=1.0)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def collect(queue, n):
    obs, act, adv = [], [], []
    for _ in range(n):
        _, o, a, r = queue.get()
        returns, total = [], 0.0
        for reward in reversed(r):
            total = reward + 0.97 * total
            returns.append(total)
        obs += o
        act += a
        adv += returns[::-1]
    adv = torch.tensor(adv)
    return torch.tensor(obs), torch.tensor(act), (adv - adv.mean()) / (adv.std() + 1e-6)


def learn(args, queue):
    policy = Policy()
    for update in range(1, args.updates + 1):
        start = time.time()
        obs, act, adv = collect(queue, args.episodes_per_update)
        waited = time.time() - start
        loss = (adv * F.mse_loss(policy(obs).squeeze(-1), act, reduction="none")).mean()
        grads = torch.autograd.grad(loss, list(policy.parameters()))
        with torch.no_grad():
            for p, g in zip(policy.parameters(), grads):
                p.add_(g, alpha=-args.lr)
        log.info("update %d loss %.4f waited %.2f s for episodes", update, loss.item(), waited)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(name)s] %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    queue = ctx.Queue(maxsize=64)
    with tempfile.TemporaryDirectory(prefix="journal-") as directory:
        actors = [ctx.Process(target=actor_main, args=(i, args, directory, queue), daemon=True)
                  for i in range(args.actors)]
        for a in actors:
            a.start()
        learn(args, queue)


if __name__ == "__main__":
    main()
