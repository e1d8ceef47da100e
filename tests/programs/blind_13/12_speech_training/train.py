import logging
import time

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger(__name__)


def time_is_up(started, limit):
    flag = torch.tensor([time.monotonic() - started > limit], dtype=torch.int32)
    dist.broadcast(flag, src=0)
    return bool(flag.item())


def train_epochs(rank, model, optimizer, batches, args):
    ctc = nn.CTCLoss(zero_infinity=True)
    started = time.monotonic()
    for epoch in range(args.epochs):
        t_log = time.monotonic()
        for step, (x, lengths, targets, target_lengths) in enumerate(batches, 1):
            logits = model(x)
            loss = ctc(logits.transpose(0, 1), targets, lengths, target_lengths)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            if step % args.display_step == 0 and rank == 0:
                now = time.monotonic()
                log.info("epoch %d batch %d/%d: loss %.3f, %.3f s/batch", epoch, step, len(batches), loss.item(),
                         (now - t_log) / args.display_step)
                t_log = now
            if time_is_up(started, args.time_limit):
                if rank == 0:
                    log.info("time limit reached in epoch %d at batch %d", epoch, step)
                return
