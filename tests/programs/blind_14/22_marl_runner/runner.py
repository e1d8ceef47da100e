import multiprocessing as mp
from collections import deque

import numpy as np
import torch

from env import env_worker


class ParallelRunner:
    def __init__(self, args, mac):
        self.args, self.mac = args, mac
        self.conns, self.procs = [], []
        for i in range(args.runners):
            parent, child = mp.Pipe()
            kwargs = dict(agents=args.agents, obs_dim=args.obs_dim, actions=args.actions,
                          limit=args.episode_limit, seed=args.seed + i)
            p = mp.Process(target=env_worker, args=(child, kwargs), name=f"env-{i}", daemon=True)
            p.start()
            child.close()
            self.conns.append(parent)
            self.procs.append(p)

    def ask(self, messages):
        for conn, message in zip(self.conns, messages):
            conn.send(message)
        return [conn.recv() for conn in self.conns]

    def run(self, temperature):
        a = self.args
        rows = a.runners * a.agents
        self.mac.init_hidden(rows)
        obs = np.concatenate(self.ask([("reset", None)] * a.runners))
        last = torch.zeros(rows, a.actions)
        batch = {"obs": [], "actions": [], "reward": []}
        while True:
            obs_t = torch.from_numpy(obs)
            actions = self.mac.select_actions(obs_t, last, temperature)
            chosen = actions.argmax(-1).view(a.runners, a.agents).numpy()
            answers = self.ask([("step", c) for c in chosen])
            batch["obs"].append(obs_t)
            batch["actions"].append(actions)
            batch["reward"].append(torch.tensor([r for _, r, _ in answers]))
            obs = np.concatenate([o for o, _, _ in answers])
            last = actions
            if answers[0][2]:
                return batch


class EpisodeBuffer:
    def __init__(self, capacity, seed):
        self.episodes = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)

    def insert(self, batch):
        self.episodes.append({key: torch.stack(values) for key, values in batch.items()})

    def sample(self, count):
        picks = self.rng.choice(len(self.episodes), count, replace=False)
        return [self.episodes[i] for i in picks]
