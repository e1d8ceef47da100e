import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector

log = logging.getLogger("trainer")


class Trainer:
    """Keeps model, optimizer and counters of one worker and averages the gradients over all workers."""

    def __init__(self, args, rank, model):
        self.args = args
        self.rank = rank
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        self.num_updates = 0
        self._start_time = time.time()
        self._previous_training_time = 0.0
        self.state_group = dist.new_group(backend="gloo")
        for p in self.model.parameters():
            dist.broadcast(p.data, 0)

    def cumulative_training_time(self):
        return time.time() - self._start_time + self._previous_training_time

    def _loss(self, tokens):
        logits = self.model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def train_step(self, tokens):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self._loss(tokens)
        loss.backward()
        self._reduce_gradients()
        gnorm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()
        self.num_updates += 1
        return {"loss": loss.item(), "gnorm": gnorm.item()}

    def _reduce_gradients(self):
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = parameters_to_vector(grads)
        dist.all_reduce(flat)
        flat.div_(dist.get_world_size())
        offset = 0
        for g in grads:
            g.copy_(flat[offset: offset + g.numel()].view_as(g))
            offset += g.numel()

    @torch.no_grad()
    def validate(self, batches):
        self.model.eval()
        losses = [self._loss(tokens).item() for tokens in batches]
        return sum(losses) / max(1, len(losses))

    def state_dict(self, epoch, extra):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": epoch,
            "num_updates": self.num_updates,
            "previous_training_time": self.cumulative_training_time(),
            "extra": extra or {},
        }

    def save_checkpoint(self, filename, epoch, extra=None):
        """Writes the checkpoint on the first worker, with the random states of all."""
        rng_states = [None] * dist.get_world_size()
        dist.all_gather_object(rng_states, torch.get_rng_state(), group=self.state_group)
        if self.rank == 0:
            state = self.state_dict(epoch, extra)
            state["rng_states"] = rng_states
            path = os.path.join(self.args.save_dir, filename)
            torch.save(state, path + ".tmp")
            os.replace(path + ".tmp", path)
            log.info("saved %s", path)
