import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from draft_model import BlockDraft, NoValidAnchorsError, conversation_batches

log = logging.getLogger("draft")


class DraftTrainer:
    def __init__(self, rank, world, lr):
        self.rank, self.world = rank, world
        torch.manual_seed(0)
        self.model = BlockDraft()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.skipped = 0

    def sync_grads(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world
        off = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[off:off + p.numel()].view_as(p))
            off += p.numel()

    def epoch(self, epoch, n):
        losses = []
        for ids, lengths in conversation_batches(self.rank, epoch, n):
            time.sleep(0.15)
            try:
                loss = self.model(ids, lengths)
            except NoValidAnchorsError as e:
                log.debug("skip: %s", e)
                self.skipped += 1
                continue
            self.opt.zero_grad()
            loss.backward()
            self.sync_grads()
            self.opt.step()
            losses.append(loss.item())
        stats = [None] * self.world
        dist.barrier()
        dist.all_gather_object(stats, sum(losses) / len(losses))
        return stats


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world)
    tr = DraftTrainer(rank, args.world, 3e-4)
    for ep in range(args.epochs):
        stats = tr.epoch(ep, args.batches)
        if rank == 0:
            log.info("epoch %d losses %s", ep, ["%.3f" % s for s in stats])
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=100)
    ap.add_argument("--batches", type=int, default=18)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.world, start_method="fork")


if __name__ == "__main__":
    main()
