import logging
import time

import numpy as np
import torch
import torch.multiprocessing as mp

from model import Policy, Walker

log = logging.getLogger("es")


def perturb_model(model, seed, sigma):
    rng = np.random.default_rng(seed)
    twin = Policy()
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        for p in twin.parameters():
            p += sigma * torch.from_numpy(rng.normal(size=p.shape)).float()
    return twin


@torch.no_grad()
def do_rollouts(state_dict, seeds, sigma, max_steps, return_queue):
    torch.set_num_threads(1)
    model = Policy()
    model.load_state_dict(state_dict)
    for seed in seeds:
        twin = perturb_model(model, seed, sigma)
        env = Walker(seed)
        obs, total = env.reset(), 0.0
        for _ in range(max_steps):
            action = twin(torch.from_numpy(obs).float()).numpy()
            obs, reward = env.step(action)
            total += reward
        return_queue.put((seed, total))


def gradient_update(model, results, sigma, lr):
    rewards = np.array([r for _, r in results])
    ranks = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    with torch.no_grad():
        for (seed, _), weight in zip(results, ranks):
            rng = np.random.default_rng(seed)
            for p in model.parameters():
                noise = torch.from_numpy(rng.normal(size=p.shape)).float()
                p += lr / (len(results) * sigma) * weight * noise
    return rewards


def train_loop(args):
    ctx = mp.get_context("spawn")
    model = Policy()
    rng = np.random.default_rng(args.seed)
    per_process = args.population // args.n
    for gradient in range(args.max_gradient_updates):
        t0 = time.monotonic()
        return_queue = ctx.Queue()
        processes = []
        for i in range(args.n):
            seeds = [int(s) for s in rng.integers(0, 2 ** 31, per_process)]
            p = ctx.Process(target=do_rollouts, daemon=True,
                            args=(model.state_dict(), seeds, args.sigma, args.max_episode_length, return_queue))
            p.start()
            processes.append(p)
        results = [return_queue.get() for _ in range(args.n * per_process)]
        for p in processes:
            p.join()
        rewards = gradient_update(model, sorted(results), args.sigma, args.lr)
        log.info("update %d mean %.2f max %.2f, %d episodes in %.1f s", gradient, rewards.mean(),
                 rewards.max(), len(results), time.monotonic() - t0)
