"""One hyperopt trial: trains a few replicas of a parton density fit."""
import ctypes
import math
import signal
import time

import torch
from torch import nn

EXIT_PRUNED = 3


def death_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Pruned(Exception):
    pass


class PdfNet(nn.Module):
    def __init__(self, nodes, activation):
        super().__init__()
        act = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[activation]
        sizes = [2] + nodes
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), act()]
        self.net = nn.Sequential(*layers, nn.Linear(sizes[-1], 8))

    def forward(self, x):
        return self.net(torch.stack([x, x.log()], dim=1)) * (x * (1 - x)).unsqueeze(1)


def load_tables(points, seed):
    """Fast-kernel tables; every trial builds them anew."""
    gen = torch.Generator().manual_seed(seed)
    table = torch.rand(points, 50, 8, generator=gen)
    return table.repeat(1, 1, 8).reshape(points, -1, 8).contiguous()


def warm_up():
    """Makes the imports of the first optimizer here, so that the forked trials share them."""
    net = PdfNet([4], "tanh")
    opt = torch.optim.Adam(net.parameters())
    net(torch.tensor([0.1, 0.2])).sum().backward()
    opt.step()


def fit_replica(params, table, truth, seed, deadline, patience):
    torch.manual_seed(seed)
    grid = torch.logspace(-3, -0.05, table.shape[1])
    net = PdfNet(params["nodes"], params["activation"])
    opt = torch.optim.Adam(net.parameters(), lr=params["lr"])
    chi2, step = math.inf, 0
    while step < 2 * patience or time.monotonic() < deadline:
        pred = torch.einsum("pxf,xf->p", table[:400], net(grid)) / table.shape[1]
        loss = ((pred - truth[:400]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        chi2, step = loss.item(), step + 1
        if step == patience and chi2 > params["prune_above"]:
            raise Pruned(f"chi2 {chi2:.3f} after {step} steps")
    return chi2


def run_trial(conn, params, args):
    """Body of the forked process. It ends with the trial."""
    death_with_parent()
    signal.alarm(args.trial_timeout)
    torch.set_num_threads(1)
    table = load_tables(args.points, 5)
    truth = table.mean(dim=(1, 2)) * 0.4
    chi2s = []
    try:
        for replica in range(args.replicas):
            deadline = time.monotonic() + args.replica_time
            chi2s.append(fit_replica(params, table, truth, args.seed + replica, deadline,
                                     args.patience))
    except Pruned as reason:
        conn.send({"status": "pruned", "reason": str(reason)})
        conn.close()
        raise SystemExit(EXIT_PRUNED)
    conn.send({"status": "ok", "loss": sum(chi2s) / len(chi2s)})
    conn.close()
