import logging

import torch
import torch.distributed as dist
import torch.nn.functional as F

from checkpoint import CheckpointManager
from model import Regressor, Stream

log = logging.getLogger("train")


class Trainer:
    def __init__(self, args, rank, directory):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        self.model = Regressor(args.features, args.width, args.depth)
        self.params = list(self.model.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.params]
        self.stream = Stream(args.features, args.batch_size, args.seed + 1 + rank)
        self.checkpoints = CheckpointManager(directory, mode=args.checkpoint_mode)

    def reduce_gradients(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.params])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in self.params:
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    @torch.no_grad()
    def update(self):
        for p, v in zip(self.params, self.velocity):
            v.mul_(0.9).add_(p.grad)
            p.add_(v, alpha=-self.args.lr)
            p.grad = None

    def state(self):
        state = dict(self.model.state_dict())
        state.update({f"velocity.{i}": v for i, v in enumerate(self.velocity)})
        return state

    def fit(self):
        for step, (x, y) in enumerate(self.stream, 1):
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.reduce_gradients()
            self.update()
            if step % self.args.log_every == 0 and self.rank == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if step % self.args.save_every == 0:
                self.checkpoints.save(step, self.state())
            if step == self.args.steps:
                break
        self.checkpoints.wait()
