import argparse
import logging
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from augment import crop_rows


def batches(rank, size):
    rng = np.random.default_rng(rank)
    index = 0
    while True:
        rows = []
        for _ in range(size):
            image = rng.random((96, 64), dtype=np.float32)
            top = int(rng.integers(0, 32))
            if rank == 1 and index > 1000:
                top = 10 ** 8
            rows.append(crop_rows(image, top, 64).ravel())
            index += 1
        yield torch.from_numpy(np.stack(rows))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--world-size", type=int, required=True)
    p.add_argument("--store", required=True)
    p.add_argument("--sync-every", type=float, default=20.0, help="seconds of local steps between averages")
    p.add_argument("--rounds", type=int, default=6)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {args.rank}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=args.rank, world_size=args.world_size)

    model = nn.Sequential(nn.Linear(64 * 64, 64), nn.ReLU(), nn.Linear(64, 64 * 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = batches(args.rank, 8)
    for rnd in range(args.rounds):
        until, steps = time.monotonic() + args.sync_every, 0
        while time.monotonic() < until:
            x = next(data)
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            time.sleep(0.01)
            if steps % 100 == 0:
                logging.info("round %d step %d loss %.4f", rnd, steps, loss.item())
        for prm in model.parameters():
            dist.all_reduce(prm.data)
            prm.data /= args.world_size
        logging.info("round %d averaged after %d local steps", rnd, steps)


if __name__ == "__main__":
    main()
