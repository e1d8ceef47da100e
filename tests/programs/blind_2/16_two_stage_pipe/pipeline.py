import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn

import p2p

log = logging.getLogger("pipe")


def stage(rank, dim):
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))


def first_stage(model, shape, microbatches, warmup):
    """1F1B: `warmup` forwards, then one forward for every backward."""
    saved = []
    for i in range(microbatches):
        out = model(torch.randn(shape))
        saved.append(out)
        p2p.send_forward(out, 1)
        if i >= warmup:
            saved.pop(0).backward(p2p.recv_backward(shape, 1))
    for out in saved:
        out.backward(p2p.recv_backward(shape, 1))


def last_stage(model, shape, microbatches):
    losses = []
    for _ in range(microbatches):
        x = p2p.recv_forward(shape, 0)
        loss = model(x).square().mean()
        loss.backward()
        p2p.send_backward(x.grad, 0)
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--microbatches", type=int, default=8)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--steps", type=int, default=500)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s stage{rank} %(message)s")
    model = stage(rank, args.dim)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    shape = (args.batch, args.dim)
    for step in range(args.steps):
        opt.zero_grad()
        # depth of the schedule: fill the pipe a little while the loss is still noisy
        warmup = 0 if step < 30 else args.warmup
        if rank == 0:
            first_stage(model, shape, args.microbatches, warmup)
        else:
            loss = last_stage(model, shape, args.microbatches)
            if step % 10 == 0:
                log.info("step %d loss %.4f", step, loss)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
