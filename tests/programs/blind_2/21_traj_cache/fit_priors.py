import argparse
import logging
import resource
import time

import torch
from torch.utils.data import DataLoader

from dataset import AgentTrajectories

log = logging.getLogger("priors")


def collect(loader, pause):
    """Keep all targets, the clustering needs them at once."""
    futures, speeds = [], []
    for i, batch in enumerate(loader):
        futures.append(batch["future"])
        speeds.append(batch["speed"])
        time.sleep(pause)
        if i % 25 == 0:
            log.info("%d scenes collected", sum(len(s) for s in speeds))
    return torch.cat(futures), torch.cat(speeds)


def kmeans(x, k, iters=20):
    centres = x[torch.randperm(len(x))[:k]]
    for _ in range(iters):
        assign = torch.cdist(x, centres).argmin(1)
        centres = torch.stack([x[assign == j].mean(0) if (assign == j).any() else centres[j] for j in range(k)])
    return centres


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scenes", type=int, default=60_000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--modes", type=int, default=6)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    # same limit as on the cluster's login nodes
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    loader = DataLoader(AgentTrajectories(args.scenes), batch_size=args.batch_size, num_workers=args.workers)
    futures, speeds = collect(loader, pause=0.03)
    centres = kmeans((futures / speeds[:, None, None].clamp(min=0.1)).flatten(1), args.modes)
    log.info("centres %s", centres.norm(dim=1).tolist())


if __name__ == "__main__":
    main()
