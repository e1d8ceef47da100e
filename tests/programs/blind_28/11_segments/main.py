"""Actor-critic with actors that stream short segments to one learner."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch.nn import functional as F

from actor import make_policy, run_actor
from transport import SegmentReader

log = logging.getLogger("learner")


class Learner:
    def __init__(self, lr: float):
        self.policy = make_policy(4)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)

    def update(self, segment: dict) -> float:
        obs = segment["obs"].flatten(0, 1).unsqueeze(1)
        out = self.policy(obs)
        logits, value = out[:, :4], out[:, 4]
        rewards = segment["rewards"].flatten()
        advantage = (rewards - value).detach()
        chosen = F.log_softmax(logits, -1).gather(1, segment["actions"].flatten().unsqueeze(1)).squeeze(1)
        loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(value, rewards)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--rollout", type=int, default=512, help="steps in an actor's rollout buffer")
    parser.add_argument("--segment", type=int, default=4, help="steps of a published segment")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)

    ctx = mp.get_context("spawn")
    conns = []
    for index in range(args.actors):
        receiving, sending = ctx.Pipe(duplex=False)
        ctx.Process(target=run_actor, args=(index, sending, args), name=f"actor-{index}", daemon=True).start()
        sending.close()
        conns.append(receiving)

    learner, reader = Learner(args.lr), SegmentReader(conns)
    window, updates = time.monotonic(), 0
    while True:
        for segment in reader.poll():
            loss = learner.update(segment)
            updates += 1
        if (elapsed := time.monotonic() - window) >= 5:
            log.info("%d segments, %.0f env steps/s, loss %.3f", reader.received, updates * args.segment * args.envs / elapsed, loss)
            window, updates = time.monotonic(), 0


if __name__ == "__main__":
    main()
