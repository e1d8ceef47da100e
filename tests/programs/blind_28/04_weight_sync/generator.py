import logging
import queue

import torch

from model import Policy
from weight_store import WeightStore

log = logging.getLogger("generator")


def generator_main(index, port, rollouts, horizon):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(index)
    weights = WeightStore("127.0.0.1", port)
    policy = Policy()
    version = -1
    while True:
        latest = weights.latest()
        if latest != version:
            policy.load_state_dict(weights.fetch(latest))
            version = latest
        obs = torch.randn(16, 32)
        steps = []
        with torch.no_grad():
            for _ in range(horizon):
                dist_ = policy(obs)
                action = dist_.sample()
                obs = torch.roll(obs, 1, -1) * 0.95 + 0.05 * action[:, None].float() / 8 + 0.1 * torch.randn(16, 32)
                steps.append((obs, action, -obs.pow(2).mean(-1)))
        batch = tuple(torch.stack(part).numpy() for part in zip(*steps))
        try:
            rollouts.put((version, batch), timeout=30)
        except queue.Full:
            log.warning("generator %d: trainer is behind", index)
