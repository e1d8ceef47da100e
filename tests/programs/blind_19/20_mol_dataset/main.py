import argparse
import logging
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from featurise import featurise, molecules

log = logging.getLogger("glam")


class MoleculeData:
    """Processed once by rank 0 and cached on disk, the others load the cache."""

    def __init__(self, root, count, rank):
        self.path = os.path.join(root, f"processed_{count}.pt")
        if rank == 0 and not os.path.exists(self.path):
            self.process(count)
        dist.barrier()
        x, pair, y = torch.load(self.path)
        self.dataset = TensorDataset(x, pair, y)

    def process(self, count):
        log.info("Processing %d molecules ...", count)
        xs, pairs, ys = [], [], []
        t = time.time()
        for n, (atoms, bonds) in enumerate(molecules(count, seed=11), 1):
            x, pair, y = featurise(atoms, bonds)
            xs.append(x.half())
            pairs.append(pair.half())
            ys.append(y)
            if n % 2000 == 0:
                log.info("  %d/%d (%.0f/s)", n, count, n / (time.time() - t))
        y = torch.tensor(ys)
        y = (y - y.mean()) / y.std()
        torch.save((torch.stack(xs), torch.stack(pairs), y), self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)
        log.info("Done in %.0fs!", time.time() - t)


class DistanceGNN(nn.Module):
    def __init__(self, hidden=48, layers=3):
        super().__init__()
        self.lin = nn.Linear(10, hidden)
        self.layers = nn.ModuleList(nn.Linear(2 * hidden, hidden) for _ in range(layers))
        self.scale = nn.Parameter(torch.ones(layers))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x, pair):
        mask = x[..., 9:10]
        h = self.lin(x)
        for layer, s in zip(self.layers, self.scale):
            w = torch.softmax(-s * pair + (1 - mask.transpose(1, 2)) * -1e4, -1)
            h = h + torch.relu(layer(torch.cat([h, w @ h], -1))) * mask
        return self.head((h * mask).sum(1) / mask.sum(1)).squeeze(-1)


def train(rank, args, root):
    data = MoleculeData(root, args.molecules, rank)
    sampler = DistributedSampler(data.dataset, args.world, rank, seed=0)
    loader = DataLoader(data.dataset, args.batch_size, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = DDP(DistanceGNN())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    if rank == 0:
        log.info("Training start ...")
    end, stop, epoch = args.started + args.seconds, torch.zeros(1), 0
    while not stop.item():
        sampler.set_epoch(epoch)
        total = 0.0
        for x, pair, y in loader:
            loss = F.mse_loss(model(x.float(), pair.float()), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            stop.fill_(float(time.time() > end))
            dist.broadcast(stop, 0)
            if stop.item():
                break
        if rank == 0:
            log.info("epoch %d loss %.4f", epoch, total / len(loader))
        epoch += 1


def worker(rank, args, root):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank}: %(message)s")
    t = threading.Timer(146, os._exit, (0,))
    t.daemon = True
    t.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/rdzv", rank=rank, world_size=args.world)
    train(rank, args, root)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=3)
    p.add_argument("--molecules", type=int, default=28000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--seconds", type=float, default=125)
    args = p.parse_args()
    args.started = time.time()
    with tempfile.TemporaryDirectory() as root:
        mp.spawn(worker, args=(args, root), nprocs=args.world)


if __name__ == "__main__":
    main()
