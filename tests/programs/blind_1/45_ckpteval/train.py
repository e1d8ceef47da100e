import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import torch
from torch import nn

import evaluator

log = logging.getLogger("train")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--ckpt-every", type=int, default=500)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [train] %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ckpts_") as folder:
        ev = mp.Process(target=evaluator.run, args=(folder,), name="evaluator", daemon=True)
        ev.start()
        net = nn.Linear(32, 8)
        opt = torch.optim.Adam(net.parameters())
        for step in range(1, args.steps + 1):
            x = torch.randn(128, 32)
            loss = (net(x) - x[:, :8]).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.045)
            if step % 100 == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if step % args.ckpt_every == 0:
                tmp = os.path.join(folder, f"step-{step:06d}.tmp")
                torch.save(net.state_dict(), tmp)
                os.rename(tmp, tmp[:-4] + ".pt")


if __name__ == "__main__":
    main()
