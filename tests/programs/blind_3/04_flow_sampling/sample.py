import argparse
import logging
import time

import torch
import torch.multiprocessing as mp

from flow import Flow

log = logging.getLogger("sampler")


def sampler(rank, args, state, out):
    torch.set_num_threads(args.threads)
    torch.manual_seed(rank)
    model = Flow()
    model.load_state_dict(state)
    with torch.no_grad():
        while True:
            z = torch.randn(args.batch, 64)
            x = model(z)
            out.put((rank, float(x.pow(2).sum(-1).mean())))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--threads", type=int, default=16)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ctx = mp.get_context("fork")
    state = Flow().state_dict()
    out = ctx.Queue(maxsize=64)
    procs = [ctx.Process(target=sampler, args=(r, args, state, out), name=f"sampler-{r}", daemon=True)
             for r in range(args.workers)]
    for p in procs:
        p.start()
    start = time.time()
    n, energy, shown = 0, 0.0, start
    while time.time() - start < args.max_time:
        rank, e = out.get()
        n += 1
        energy += e
        if time.time() - shown > 5:
            shown = time.time()
            log.info("%d batches, %.2f batches/s, mean energy %.3f", n, n / (shown - start), energy / n)
    for p in procs:
        p.terminate()


if __name__ == "__main__":
    main()
