import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from actor import run_actor

torch.set_num_threads(1)
log = logging.getLogger("learner")


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.GRU(64, 32, batch_first=True)
        self.value = nn.Linear(32, 1)

    def forward(self, frames):
        h, _ = self.core(frames.flatten(2))
        return self.value(h).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=2)
    ap.add_argument("--unroll", type=int, default=20)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--render-ms", type=float, default=35)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    queue = mp.Queue(maxsize=1)
    actors = [mp.Process(target=run_actor, args=(r, queue, args.unroll, args.render_ms),
                         name=f"actor-{r}", daemon=True) for r in range(args.actors)]
    for a in actors:
        a.start()
    agent = Agent()
    opt = torch.optim.RMSprop(agent.parameters(), lr=1e-3)
    start, frames = time.time(), 0
    while time.time() - start < args.max_time:
        batch = [queue.get() for _ in range(args.batch)]
        x = torch.stack([torch.from_numpy(f) for f, _ in batch])
        ret = torch.stack([torch.from_numpy(r) for _, r in batch]).flip(1).cumsum(1).flip(1)
        loss = (agent(x) - ret).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        frames += x.shape[0] * x.shape[1]
        log.info("frames %d  %.0f fps  loss %.2f", frames, frames / (time.time() - start), loss.item())
    for a in actors:
        a.terminate()


if __name__ == "__main__":
    main()
