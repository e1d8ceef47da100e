import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("retrieval")


class DualEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(64, 128)
        self.d = nn.Linear(64, 128)

    def forward(self, q, d):
        return self.q(q) @ self.d(d).T


class FullRanking:
    def __init__(self, queries, documents=20000):
        gen = torch.Generator().manual_seed(77)
        self.docs = torch.randn(documents, 64, generator=gen)
        self.queries = self.docs[:queries] + 0.3 * torch.randn(queries, 64, generator=gen)

    @torch.no_grad()
    def recall(self, model):
        docs = model.d(self.docs)
        hits = 0
        start = time.time()
        for i, query in enumerate(self.queries):
            order = (docs @ model.q(query)).argsort(descending=True)
            hits += int(i in order[:10])
            time.sleep(0.015)
            if (i + 1) % 300 == 0:
                log.info("ranked %d/%d queries (%.0fs)", i + 1, len(self.queries), time.time() - start)
        return hits / len(self.queries)


def run_rank(rank, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.world_size)
    model = DistributedDataParallel(DualEncoder())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    ranking = FullRanking(args.queries) if rank == 0 else None
    gen = torch.Generator().manual_seed(rank)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            d = torch.randn(192, 64, generator=gen)
            q = d + 0.3 * torch.randn(192, 64, generator=gen)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(q, d), torch.arange(192))
            loss.backward()
            opt.step()
        if rank == 0:
            log.info("epoch %d loss %.3f, full ranking on this rank, others wait", epoch, loss.item())
            log.info("epoch %d recall@10 %.3f", epoch, ranking.recall(model.module))
        dist.barrier()
    dist.destroy_process_group()
