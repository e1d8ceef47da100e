"""Sampler process: plays groups of rollouts with a snapshot of the policy."""
import logging
import time

import torch

from policy import Policy, TurnTask

log = logging.getLogger("sampler")


class Sampler:
    def __init__(self, index, shared, admission, args):
        self.index, self.shared, self.admission, self.args = index, shared, admission, args
        self.policy = Policy()

    @torch.no_grad()
    def rollout(self, number):
        self.policy.load_state_dict(self.shared.state_dict())
        task = TurnTask(torch.Generator().manual_seed(number), self.args.long_fraction)
        obs_all, act_all = [], []
        total = torch.zeros(self.args.group_size)
        for _ in range(task.turns):
            obs = task.observe(self.args.group_size)
            action = self.policy(obs).sample()
            total += task.reward(obs, action)
            time.sleep(task.latency)
            obs_all.append(obs)
            act_all.append(action)
        return torch.stack(obs_all).numpy(), torch.stack(act_all).numpy(), (total / task.turns).numpy()

    def run(self, groups):
        while True:
            number, version = self.admission.admit(self.index)
            obs, act, ret = self.rollout(number)
            groups.put((number, version, obs, act, ret))
            log.debug("sampler %d group %d version %d", self.index, number, version)


def run_sampler(index, shared, admission, groups, args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + index)
    Sampler(index, shared, admission, args).run(groups)
