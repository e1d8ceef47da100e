import argparse
import logging
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import RemoteStore, save_and_upload


def run(rank, world, port, args):
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    model = DDP(nn.Sequential(nn.Embedding(6000, 400), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 100)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    store = RemoteStore(args.out)
    for step in range(1, args.steps + 1):
        ids = torch.randint(6000, (64,))
        loss = nn.functional.cross_entropy(model(ids), ids % 100)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.01)
        if step % 10 == 0 and rank == 0:
            logging.info("step %d loss %.3f", step, loss.item())
        if step % args.save_every == 0:
            save_and_upload(model, opt, step, store)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=3)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--save-every", type=int, default=15)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ckpt-") as args.out:
        mp.start_processes(run, (args.world, port, args), nprocs=args.world, start_method="fork")


if __name__ == "__main__":
    main()
