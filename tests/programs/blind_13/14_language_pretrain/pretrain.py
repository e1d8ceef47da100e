import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from fetch import prepare_corpus

log = logging.getLogger("pretrain")


class ByteLM(nn.Module):
    def __init__(self, dim=96, layers=2):
        super().__init__()
        self.emb = nn.Embedding(256, dim)
        self.rnn = nn.GRU(dim, dim, num_layers=layers, batch_first=True)
        self.head = nn.Linear(dim, 256)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


def sample_batch(corpus, generator, batch_size, seq_len):
    starts = torch.randint(0, len(corpus) - seq_len - 1, (batch_size,), generator=generator).tolist()
    rows = torch.stack([torch.from_numpy(corpus[s:s + seq_len + 1].astype("int64")) for s in starts])
    return rows[:, :-1], rows[:, 1:]


def run_rank(rank, port, url, cache, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = DDP(ByteLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    if rank == 0:
        log.info("%d ranks are up, preparing the corpus", args.ranks)

    corpus = prepare_corpus(rank, url, cache)
    dist.barrier()
    if rank == 0:
        log.info("corpus is ready: %d tokens", len(corpus))

    generator = torch.Generator().manual_seed(rank)
    started, step = time.monotonic(), 0
    stop = torch.zeros(1)
    while not stop.item():
        x, y = sample_batch(corpus, generator, args.batch_size, args.seq_len)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % args.log_interval == 0:
            log.info("step %d loss %.3f, %.1f steps/s", step, loss.item(), step / (time.monotonic() - started))
        stop.fill_(float(time.monotonic() - started > args.train_seconds))
        dist.broadcast(stop, src=0)
    if rank == 0:
        log.info("finished after %d steps", step)
    dist.barrier()
    dist.destroy_process_group()
