"""Several fits on the same preprocessed meshes, one process each."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from cache import MeshCache

log = logging.getLogger("mesh")


def setup_logging():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")


def prebuild(folder, meshes):
    setup_logging()
    MeshCache(folder, meshes).ensure()


def fit(seed, folder, meshes, steps):
    setup_logging()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    cache = MeshCache(folder, meshes)
    cache.ensure()
    net = nn.Sequential(nn.Linear(39, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.from_numpy(cache.load((step * 7 + seed) % meshes))
        x = x[torch.randint(len(x), (512,))]
        loss = nn.functional.mse_loss(net(x), x[:, -3:].norm(dim=1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            log.info("seed %d step %d loss %.4f", seed, step, loss.item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", type=Path, default=Path("cache"))
    p.add_argument("--meshes", type=int, default=240)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--prebuild-seconds", type=float, default=5.0)
    args = p.parse_args()
    setup_logging()

    args.folder.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="meshes-", dir=args.folder))
    pre = mp.Process(target=prebuild, args=(folder, args.meshes), name="prebuild")
    pre.start()
    pre.join(args.prebuild_seconds)
    if pre.is_alive():
        log.info("prebuild takes long, the fits will do the rest")
        pre.kill()
        pre.join()
    fits = [mp.Process(target=fit, args=(s, folder, args.meshes, args.steps), name=f"fit-{s}")
            for s in range(args.seeds)]
    t0 = time.time()
    for proc in fits:
        proc.start()
    for proc in fits:
        proc.join()
    log.info("all fits in %.1f s", time.time() - t0)


if __name__ == "__main__":
    main()
