import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from limits import cap_memory, is_out_of_memory
from model import DocumentModel

log = logging.getLogger("trainer")


class Documents:
    """Batches of documents of similar length; a few are much longer than the rest."""

    def __init__(self, batch_size, max_length, seed):
        self.batch_size, self.max_length = batch_size, max_length
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            length = int(torch.empty(()).log_normal_(4.5, 1.2, generator=self.generator).item())
            length = min(max(length, 16), self.max_length)
            tokens = torch.randint(512, (self.batch_size, length), generator=self.generator)
            yield tokens, tokens.float().mean(1).sub(255).div(4).clamp(-4, 3).floor().long() + 4


class Trainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.microbatch = args.batch_size
        self.model = DistributedDataParallel(DocumentModel())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.documents = Documents(args.batch_size, args.max_length, args.seed + rank)

    def _forward_backward(self, tokens, labels):
        pieces = list(zip(tokens.split(self.microbatch), labels.split(self.microbatch)))
        total = 0.0
        for i, (x, y) in enumerate(pieces):
            self.model.require_backward_grad_sync = i == len(pieces) - 1
            loss = torch.nn.functional.cross_entropy(self.model(x), y) * len(x) / len(tokens)
            loss.backward()
            total += loss.item()
        return total

    def _share(self, oom, loss):
        """What happened on each rank."""
        mine = torch.tensor([oom, loss], dtype=torch.float64)
        reports = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(reports, mine)
        return torch.stack(reports)

    def train_batch(self, tokens, labels):
        while True:
            self.optimizer.zero_grad()
            loss, oom = 0.0, False
            try:
                loss = self._forward_backward(tokens, labels)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                log.warning("out of memory with %d documents of %d tokens", self.microbatch, tokens.shape[1])
                oom = True
            reports = self._share(oom, loss)
            if reports[:, 0].any():
                if self.microbatch == 1:
                    raise RuntimeError("out of memory with a single document")
                self.microbatch //= 2
                log.info("microbatch is %d from now on", self.microbatch)
                continue
            self.optimizer.step()
            return reports[:, 1].mean().item()


def run_rank(rank, world, port, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    trainer = Trainer(rank, args)
    dist.barrier()
    cap_memory(args.memory_mb)
    for step, (tokens, labels) in enumerate(trainer.documents, 1):
        loss = trainer.train_batch(tokens, labels)
        if rank == 0 and step % args.log_every == 0:
            log.info("step %d loss %.4f, last length %d", step, loss, tokens.shape[1])
        if step == args.steps:
            break
    dist.destroy_process_group()
