import logging
import os
import time

import torch
import torch.distributed as dist

from pfmodel import EventLoader, mlpf_loss

log = logging.getLogger(__name__)


def train(rank, model, loader, optimizer, steps):
    model.train()
    total = 0.0
    for step in range(steps):
        x, target = next(loader)
        loss = sum(mlpf_loss(model(x), target).values())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


@torch.no_grad()
def validation_run(model, loader, steps):
    model.eval()
    total = 0.0
    for _ in range(steps):
        x, target = next(loader)
        total += sum(mlpf_loss(model(x), target).values()).item()
    return total / steps


def train_all_epochs(rank, world_size, model, optimizer, args):
    train_loader = EventLoader(args.batch_size, seed=1 + rank)
    valid_loader = EventLoader(args.batch_size, seed=1000)
    best = float("inf")
    for epoch in range(1, args.num_epochs + 1):
        t0 = time.time()
        train_loss = train(rank, model, train_loader, optimizer, args.steps_per_epoch)
        log.info("epoch %d: train loss %.4f, %.1f s", epoch, train_loss, time.time() - t0)

        if rank == 0:
            val_loss = validation_run(model, valid_loader, args.val_steps)
            log.info("epoch %d: validation loss %.4f", epoch, val_loss)
            if val_loss < best:
                best = val_loss
                torch.save(model.module.state_dict(), os.path.join(args.outdir, "best_weights.pth"))
        dist.barrier()
