"""Synchronous replicas with a backup worker: the chief averages the first gradients of a step."""
import argparse
import logging
import multiprocessing as mp
import time

import torch

from replicas import GradientAccumulator, make_model, worker_process

log = logging.getLogger("chief")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=1.5)
    p.add_argument("--total-num-replicas", type=int, default=3)
    p.add_argument("--replicas-to-aggregate", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--features", type=int, default=100)
    p.add_argument("--step-time", type=float, nargs="+", default=[0.16, 0.10, 0.12])
    p.add_argument("--jitter", type=float, default=0.35)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ctx = mp.get_context("fork")
    model = make_model(args.features)
    model.share_memory()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    global_step = ctx.Value("l", 0)
    gradients, tokens, stop = ctx.Queue(), ctx.Queue(), ctx.Event()
    workers = [ctx.Process(target=worker_process, args=(args, i, model, global_step, gradients, tokens, stop),
                           name=f"worker-{i}") for i in range(args.total_num_replicas)]
    for w in workers:
        w.start()
        tokens.put(0)
    accumulator = GradientAccumulator(model, args.replicas_to_aggregate)
    end = time.monotonic() + 60 * args.minutes
    while time.monotonic() < end:
        worker, at_step, grads, loss = gradients.get()
        tokens.put(global_step.value)
        if not accumulator.add(worker, at_step, grads, global_step.value):
            continue
        accumulator.apply(opt)
        with global_step.get_lock():
            global_step.value += 1
        if global_step.value % 50 == 0:
            log.info("global step %d, loss %.4f, gradients used per worker %s, dropped as stale %s",
                     global_step.value, loss, dict(accumulator.used), dict(accumulator.dropped))
    stop.set()
    for _ in workers:
        tokens.put(None)
    while any(w.is_alive() for w in workers):
        try:
            gradients.get(timeout=0.2)
        except Exception:
            pass
    for w in workers:
        w.join()
    log.info("stopped at global step %d", global_step.value)


if __name__ == "__main__":
    main()
