import argparse
import logging
import tempfile
import time

import torch
import torch.multiprocessing as mp
from torch import nn

from cache import prepare

log = logging.getLogger("finetune")


def replica(rank, args, start_line):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    data = prepare(args.cache_dir, "summaries", rank)
    log.info("data ready: %s", tuple(data.shape))
    start_line.wait()
    net = nn.Linear(64, 64)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(args.steps):
        loss = (net(data) - data).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
        if step % 20 == 0:
            log.info("step %d loss %.3f", step, loss.item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--replicas", type=int, default=3)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--cache-dir", default=None)
    args = ap.parse_args()
    args.cache_dir = args.cache_dir or tempfile.mkdtemp(prefix="ds_cache_")
    ctx = mp.get_context("fork")
    start_line = ctx.Barrier(args.replicas)
    ps = [ctx.Process(target=replica, args=(r, args, start_line), name=f"replica-{r}") for r in range(args.replicas)]
    for p in ps:
        p.start()
    for p in ps:
        p.join()


if __name__ == "__main__":
    main()
