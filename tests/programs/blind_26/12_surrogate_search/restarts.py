"""Multi start optimisation of the surrogate, one start per task."""
import logging
import multiprocessing as mp

import torch

log = logging.getLogger("restarts")


def fit_from(task):
    gp, seed, steps = task
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(seed)
    log_scale = (0.5 * torch.randn(gp.x.shape[1], generator=gen)).requires_grad_()
    log_amp = (0.5 * torch.randn((), generator=gen)).requires_grad_()
    opt = torch.optim.Adam([log_scale, log_amp], lr=0.05)
    for _ in range(steps):
        opt.zero_grad()
        loss = gp.nll(log_scale, log_amp)
        loss.backward()
        opt.step()
    return loss.item(), log_scale.detach().numpy(), float(log_amp.detach())


def acquire_from(task):
    gp, seed, steps = task
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(seed)
    q = (4 * torch.rand(1, gp.x.shape[1], generator=gen) - 2).requires_grad_()
    opt = torch.optim.Adam([q], lr=0.05)
    for _ in range(steps):
        opt.zero_grad()
        mean, var = gp.predict(q)
        score = -(mean + 2.0 * var.sqrt()).sum()
        score.backward()
        opt.step()
        q.data.clamp_(-2, 2)
    return -score.item(), q.detach().numpy()


class MultiStart:
    def __init__(self, workers, restarts, steps):
        self.workers = workers
        self.restarts = restarts
        self.steps = steps
        self.context = mp.get_context("spawn")

    def _run(self, func, gp, base_seed):
        tasks = [(gp, base_seed + i, self.steps) for i in range(self.restarts)]
        with self.context.Pool(self.workers) as pool:
            return pool.map(func, tasks)

    def fit(self, gp, seed):
        nll, scale, amp = min(self._run(fit_from, gp, seed), key=lambda r: r[0])
        gp.log_scale = torch.from_numpy(scale)
        gp.log_amp = torch.tensor(amp)
        return nll

    def next_point(self, gp, seed):
        score, point = max(self._run(acquire_from, gp, seed), key=lambda r: r[0])
        return score, torch.from_numpy(point)
