import logging
import queue

import numpy as np
import torch

from env import GridForage
from model import PhasicNet

log = logging.getLogger("workers")


def setup():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s-%(process)d %(message)s")
    torch.set_num_threads(1)


def newest(weights):
    """Wait for weights; if there are several, take the last."""
    state = weights.get()
    while state is not None:
        try:
            state = weights.get_nowait()
        except queue.Empty:
            break
    return state


@torch.no_grad()
def rollout(net, env, obs, steps):
    data = {"obs": [], "act": [], "logp": [], "rew": []}
    for _ in range(steps):
        logits = net.policy(torch.from_numpy(obs))
        dist = torch.distributions.Categorical(logits=logits)
        act = dist.sample()
        data["obs"].append(obs)
        data["act"].append(act.numpy())
        data["logp"].append(dist.log_prob(act).numpy())
        obs, rew = env.step(act.numpy())
        data["rew"].append(rew)
    return {k: np.stack(v) for k, v in data.items()}, obs


def actor(aid, args, weights, out):
    setup()
    torch.manual_seed(args.seed + aid)
    env = GridForage(args.envs, args.size, np.random.default_rng(args.seed + aid))
    net = PhasicNet(args.size, args.width)
    obs = env.observe()
    while True:
        state = newest(weights)
        if state is None:
            return
        net.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        data, obs = rollout(net, env, obs, args.horizon)
        out.put((aid, data))


def evaluate(cycle, args, state):
    """Runs once after each cycle in a process of its own and ends."""
    setup()
    net = PhasicNet(args.size, args.width)
    net.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    env = GridForage(16, args.size, np.random.default_rng(10_000))
    data, _ = rollout(net, env, env.observe(), args.horizon)
    log.info("evaluation of cycle %d: %.3f food per step", cycle, data["rew"].mean())
