import argparse
import logging
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

import launch_env
from corpus import BlockCorpus
from moe import DomainMoE

log = logging.getLogger("moe")


class DomainLM(nn.Module):
    def __init__(self, args, group):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.dim)
        self.mixers = nn.ModuleList(nn.GRU(args.dim, args.dim, batch_first=True) for _ in range(args.layers))
        self.moes = nn.ModuleList(
            DomainMoE(args.dim, 4 * args.dim, args.experts, group) for _ in range(args.layers))
        self.head = nn.Linear(args.dim, args.vocab)

    def forward(self, tokens, doc_domains):
        h = self.embed(tokens)
        batch, length, dim = h.shape
        domains = doc_domains.unsqueeze(1).expand(batch, length).reshape(-1)
        for mixer, moe in zip(self.mixers, self.moes):
            h = h + mixer(h)[0]
            h = moe(h.reshape(-1, dim), domains).view(batch, length, dim)
        return self.head(h)

    def shared_parameters(self):
        return [p for name, p in self.named_parameters() if ".local." not in name]


def average_shared_grads(model, world):
    params = model.shared_parameters()
    flat = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).reshape(-1) for p in params])
    dist.all_reduce(flat)
    flat.div_(world)
    offset = 0
    for p in params:
        p.grad = flat[offset:offset + p.numel()].view_as(p).clone()
        offset += p.numel()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(message)s")
    launch_env.apply(rank)
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=f"tcp://127.0.0.1:{port}",
                            rank=rank, world_size=args.world_size)
    expert_group = dist.new_group(list(range(args.world_size)))

    torch.manual_seed(args.seed)
    model = DomainLM(args, expert_group).to(device)
    for p in model.shared_parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    corpus = iter(BlockCorpus(args.vocab, rank, args.batch_docs, args.doc_len))
    log.info("rank %d holds experts %s", rank,
             [rank * args.experts // args.world_size + i for i in range(args.experts // args.world_size)])

    started, seen = time.time(), 0
    for step in range(1, args.steps + 1):
        tokens, doc_domains = next(corpus)
        tokens, doc_domains = tokens.to(device), doc_domains.to(device)
        logits = model(tokens[:, :-1], doc_domains)
        loss = F.cross_entropy(logits.reshape(-1, args.vocab), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average_shared_grads(model, args.world_size)
        norm = nn.utils.clip_grad_norm_(model.shared_parameters(), args.clip)
        optimizer.step()
        seen += tokens.numel()
        if step % args.log_every == 0:
            log.info("step %d loss %.4f grad norm %.2f %.0f tokens/s", step, loss.item(), norm.item(),
                     seen / (time.time() - started))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--doc-len", type=int, default=48)
    parser.add_argument("--batch-docs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--log-every", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mp.spawn(worker, args=(args, launch_env.free_port()), nprocs=args.world_size)


if __name__ == "__main__":
    main()
