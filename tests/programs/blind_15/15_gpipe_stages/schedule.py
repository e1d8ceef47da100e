import logging
import time

import torch
import torch.distributed as dist

log = logging.getLogger("pipe")


class GPipeSchedule:
    """All forwards of the micro-batches, then all backwards, then one optimizer step."""

    def __init__(self, stage, opt, rank, world_size, args):
        self.stage, self.opt, self.rank, self.args = stage, opt, rank, args
        self.first, self.last = rank == 0, rank == world_size - 1
        self.shape = (args.micro_size, args.seq_len, args.dim)
        self.gen = torch.Generator().manual_seed(5)
        self.waiting = 0.0

    def _recv(self, src):
        t = torch.empty(self.shape)
        t0 = time.time()
        dist.recv(t, src=src)
        self.waiting += time.time() - t0
        return t

    def _tokens(self):
        a = self.args
        return torch.randint(0, a.vocab, (a.microbatches, a.micro_size, a.seq_len + 1), generator=self.gen)

    def step(self):
        tokens = self._tokens()
        kept, total = [], 0.0
        for m in range(self.args.microbatches):
            if self.first:
                x, out = None, self.stage(tokens[m, :, :-1])
            else:
                x = self._recv(self.rank - 1).requires_grad_()
                out = self.stage(x, tokens[m, :, 1:]) if self.last else self.stage(x)
            if self.last:
                total += out.item()
            else:
                dist.send(out.detach(), dst=self.rank + 1)
            kept.append((x, out))
        for x, out in reversed(kept):
            if self.last:
                (out / self.args.microbatches).backward()
            else:
                out.backward(self._recv(self.rank + 1))
            if not self.first:
                dist.send(x.grad, dst=self.rank - 1)
        self.opt.step()
        self.opt.zero_grad()
        return total / self.args.microbatches

    def run(self):
        start = time.time()
        step = 0
        while True:
            stop = torch.tensor([float(time.time() - start > self.args.max_seconds)])
            dist.broadcast(stop, src=0)
            if stop.item():
                break
            loss = self.step()
            step += 1
            if step % self.args.log_every == 0:
                idle = 100 * self.waiting / (time.time() - start)
                if self.last:
                    log.info("step %d loss %.4f  idle %.0f%%", step, loss, idle)
                else:
                    log.info("step %d  idle %.0f%%", step, idle)
        log.info("finished %d steps", step)
