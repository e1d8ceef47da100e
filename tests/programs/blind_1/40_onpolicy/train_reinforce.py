"""On-policy training: an iteration's episodes are kept until the update, then dropped."""
import argparse
import gc
import logging
import multiprocessing as mp

import torch
from torch import nn

from rollouts import rollout_process

log = logging.getLogger("onpolicy")


class Iteration:
    """Storage of one iteration, filled as the episodes arrive."""

    def __init__(self, n):
        self.data, self.n = torch.empty(n, 64, 2048), 0

    def add(self, raw):
        self.data[self.n] = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(64, -1)
        self.data[self.n].div_(255)
        self.n += 1

    def nbytes(self):
        return self.n * self.data[0].numel() * 4


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--episodes", type=int, default=130, help="per worker and iteration")
    ap.add_argument("--iterations", type=int, default=100)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    cmds, out = [mp.Queue() for _ in range(args.workers)], mp.Queue(maxsize=64)
    for i in range(args.workers):
        mp.Process(target=rollout_process, args=(i, cmds[i], out), name=f"rollout-{i}", daemon=True).start()
    net = nn.Linear(2048, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    for it in range(args.iterations):
        for c in cmds:
            c.put(args.episodes)
        cur, open_ = Iteration(args.workers * args.episodes), args.workers
        while open_:
            _, raw = out.get()
            if raw is None:
                open_ -= 1
            else:
                cur.add(raw)
        size = cur.nbytes()
        for ep in cur.data[:cur.n]:
            loss = net(ep).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("iteration %d: %d episodes, %.0f MB, loss %.3f", it, cur.n, size / 2**20, loss.item())
        del cur, ep
        gc.collect()
    for c in cmds:
        c.put(None)


if __name__ == "__main__":
    main()
