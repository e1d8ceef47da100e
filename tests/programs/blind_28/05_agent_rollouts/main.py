import argparse
import logging
import queue

import torch
import torch.multiprocessing as mp
from torch import nn

from gateway import Gateway
from rollout_worker import rollout_main

log = logging.getLogger("trainer")


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(256, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, texts):
        flat = torch.tensor([b for text in texts for b in text])
        offsets = torch.tensor([0] + [len(text) for text in texts[:-1]]).cumsum(0)
        return self.out(self.emb(flat, offsets)).squeeze(-1)


def main():
    parser = argparse.ArgumentParser(description="multi-turn agent rollouts with a critic")
    parser.add_argument("--kinds", nargs="+", default=["math", "math", "repo"])
    parser.add_argument("--math-turns", type=int, default=5)
    parser.add_argument("--repo-turns", type=int, default=30)
    parser.add_argument("--steps", type=int, default=100000)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    gateway = Gateway({"math": args.math_turns, "repo": args.repo_turns})
    ctx = mp.get_context("fork")
    workers = []
    for i, kind in enumerate(args.kinds):
        proc = ctx.Process(
            target=rollout_main, args=(f"rollout-{i}", kind, gateway.port), name=f"rollout-{i}", daemon=True
        )
        proc.start()
        workers.append(proc)
    gateway.start()

    critic = Critic()
    optim = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for step in range(args.steps):
        batch = [gateway.finished.get()]
        while len(batch) < 4:
            try:
                batch.append(gateway.finished.get(timeout=1.0))
            except queue.Empty:
                break
        texts = [b" ".join(m["content"].encode()[:512] for m in c.messages) for c in batch]
        targets = torch.tensor([c.reward / c.turns for c in batch])
        loss = nn.functional.mse_loss(critic(texts), targets)
        optim.zero_grad()
        loss.backward()
        optim.step()
        kinds = ",".join(sorted({c.kind for c in batch}))
        log.info("step %d: %d conversations (%s) reward %.2f loss %.3f", step, len(batch), kinds, targets.mean(), loss)


if __name__ == "__main__":
    main()
