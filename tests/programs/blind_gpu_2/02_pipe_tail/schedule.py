from collections import deque

import torch
import torch.distributed as dist
import torch.nn.functional as F


class OneForwardOneBackward:
    """1F1B over point-to-point links between neighbouring stages."""

    def __init__(self, stage, index, count, act_shape, device):
        self.act_group = dist.new_group()
        self.grad_group = dist.new_group()
        self.stage, self.index, self.count = stage, index, count
        self.act_shape, self.device = act_shape, device
        self.is_first = index == 0
        self.is_last = index == count - 1
        self.in_flight = deque()
        self.outbox = []
        self.loss_sum = 0.0

    def _recv(self, peer, group):
        buf = torch.empty(self.act_shape, device=self.device)
        dist.recv(buf, src=peer, group=group)
        return buf

    def _send(self, tensor, peer, group):
        tensor = tensor.detach().contiguous()
        self.outbox.append((dist.isend(tensor, dst=peer, group=group), tensor))

    def _flush(self):
        for work, _ in self.outbox:
            work.wait()
        self.outbox.clear()

    def forward_one(self, source, targets):
        if self.is_first:
            x = next(source).to(self.device)
        else:
            x = self._recv(self.index - 1, self.act_group).requires_grad_()
        y = self.stage(x)
        if self.is_last:
            labels = next(targets).to(self.device)
            y = F.cross_entropy(y.flatten(0, 1), labels.flatten())
            self.loss_sum += y.item()
        else:
            self._send(y, self.index + 1, self.act_group)
        self.in_flight.append((x, y))

    def backward_one(self):
        x, y = self.in_flight.popleft()
        if self.is_last:
            y.backward()
        else:
            y.backward(self._recv(self.index + 1, self.grad_group))
        if not self.is_first:
            self._send(x.grad, self.index - 1, self.grad_group)

    def step(self, n_microbatches, source, targets):
        self.loss_sum = 0.0
        warmup = self.count - self.index - 1
        steady = max(n_microbatches - warmup, 0)
        for _ in range(warmup):
            self.forward_one(source, targets)
        for _ in range(steady):
            self.forward_one(source, targets)
            self.backward_one()
        for _ in range(warmup):
            self.backward_one()
        self._flush()
        return self.loss_sum / n_microbatches
