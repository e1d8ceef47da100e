import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import PairDataset
from model import Encoder

log = logging.getLogger("train")


def setup(rank, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank,
                            world_size=args.world_size)


@torch.no_grad()
def evaluate(encoder, loader):
    encoder.eval()
    hits = total = 0
    for code, text in loader:
        scores = encoder(code) @ encoder(text).t()
        hits += (scores.argmax(1) == torch.arange(len(code))).sum().item()
        total += len(code)
    encoder.train()
    return hits / total


def run(rank, args):
    setup(rank, args)
    encoder = DDP(Encoder(), find_unused_parameters=False)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=args.lr)
    train = PairDataset(args.train_size, args.length, seed=1)
    sampler = DistributedSampler(train, args.world_size, rank, seed=args.seed)
    loader = DataLoader(train, args.batch_size, sampler=sampler, drop_last=True)
    valid = DataLoader(PairDataset(args.valid_size, args.length, seed=2), args.batch_size)
    step = 0
    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for code, text in loader:
            began = time.time()
            ids = torch.cat([code, F.pad(text, (0, code.shape[1] - text.shape[1]))])
            a, b = encoder(ids).chunk(2)
            loss = F.cross_entropy(a @ b.t() / 0.07, torch.arange(len(code)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.log_every == 0:
                log.info("epoch %d step %d loss %.3f (%.2f s)", epoch, step, loss.item(), time.time() - began)
            if step % args.eval_every == 0:
                if rank == 0:
                    log.info("evaluating at step %d", step)
                    mrr = evaluate(encoder, valid)
                    best = max(best, mrr)
                    log.info("step %d: top1 %.3f, best %.3f", step, mrr, best)
                dist.barrier()
    dist.destroy_process_group()
