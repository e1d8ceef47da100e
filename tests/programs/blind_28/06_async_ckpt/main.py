import argparse
import logging
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import Recipe


def rank_main(rank, args, port, root):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(minutes=30))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=args.world_size, timeout=timedelta(minutes=30))
    Recipe(args, root).run()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--save-every", type=int, default=30)
    parser.add_argument("--data-time", type=float, default=0.05)
    parser.add_argument("--staging-time", type=float, default=2.5, help="device to host copy of the optimizer")
    args = parser.parse_args()

    ctx = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="ckpt-") as root:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ranks = [
            ctx.Process(target=rank_main, args=(r, args, store.port, root), name=f"rank-{r}", daemon=True)
            for r in range(args.world_size)
        ]
        for proc in ranks:
            proc.start()
        for proc in ranks:
            proc.join()


if __name__ == "__main__":
    main()
