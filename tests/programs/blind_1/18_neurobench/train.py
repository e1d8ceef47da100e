import argparse
import io
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from benchmark import Benchmark

log = logging.getLogger("mswc")


def make_model():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 64, generator=g)
    return list(zip(x.split(128), x[:, :10].argmax(1).split(128)))


def evaluator(ckpts):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [eval] %(message)s")
    torch.set_num_threads(1)
    model, data = make_model(), make_data(256, 1)
    for step, blob in iter(ckpts.get, None):
        model.load_state_dict(torch.load(io.BytesIO(blob)))
        t0 = time.time()
        res = Benchmark(model, data).run()
        log.info("step %d acc %.3f sparsity %.3f (%.2fs)", step, res["accuracy"], res["activation_sparsity"],
                 time.time() - t0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--eval-every", type=int, default=40)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [train] %(message)s")
    torch.set_num_threads(1)
    ckpts = mp.Queue(maxsize=2)
    ev = mp.Process(target=evaluator, args=(ckpts,), name="evaluator", daemon=True)
    ev.start()
    model, data = make_model(), make_data(4096, 0)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        x, y = data[step % len(data)]
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.03)
        if step % args.eval_every == 0:
            b = io.BytesIO()
            torch.save(model.state_dict(), b)
            ckpts.put((step, b.getvalue()))
            log.info("step %d loss %.4f", step, loss.item())
    ckpts.put(None)
    ev.join()


if __name__ == "__main__":
    main()
