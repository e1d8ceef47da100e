import logging
import time

import torch
from torch import nn

log = logging.getLogger("fleet.evaluator")


class PolicyNet(nn.Module):
    def __init__(self, obs=128, width=256, actions=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, width), nn.ELU(), nn.Linear(width, width), nn.ELU(),
                                 nn.Linear(width, actions))

    def forward(self, obs):
        return self.net(obs).softmax(-1)


class PolicyEvaluator:
    def __init__(self, ident, envs):
        torch.manual_seed(ident)
        self.ident = ident
        self.policy = PolicyNet()
        self.obs = torch.randn(envs, 128)
        self.returns = torch.zeros(envs)

    @torch.no_grad()
    def step(self):
        probs = self.policy(self.obs)
        actions = probs.argmax(-1)
        self.obs = (self.obs.roll(1, 1) * 0.9 + 0.1 * torch.tanh(actions[:, None].float())).clamp_(-3, 3)
        self.returns += probs.amax(-1)


def evaluator_main(ident, args, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(args.threads)
    evaluator = PolicyEvaluator(ident, args.envs)
    deadline = time.monotonic() + args.seconds
    mark, steps = time.monotonic(), 0
    while time.monotonic() < deadline:
        for _ in range(50):
            evaluator.step()
        steps += 50
        now = time.monotonic()
        log.info("policy %d: %d steps, %.1f steps/s", ident, steps, 50 / (now - mark))
        mark = now
    results.put((ident, steps, evaluator.returns.mean().item()))
