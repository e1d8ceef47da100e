"""Launches the fine-tuning job on the nodes and starts it again after a preemption.

Every node has its own scratch disk; on one host two "nodes" are two folders.
"""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import socket
import sys
import tempfile

import torch._dynamo  # noqa: F401  torch.optim needs it; once before the fork instead of in every worker

from finetune import TrainingArguments, run_worker

log = logging.getLogger("launcher")
PREEMPTED = 75


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=2)
    p.add_argument("--run-name", default="reviews-base")
    p.add_argument("--max-steps", type=int, default=20000)
    p.add_argument("--save-steps", type=int, default=10)
    p.add_argument("--slot", type=float, default=3.0, help="seconds until the first time slot ends")
    p.add_argument("--max-restarts", type=int, default=5)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    scratch = [tempfile.mkdtemp(prefix=f"node{n}-scratch-") for n in range(args.nodes)]
    ctx = mp.get_context("fork")

    for attempt in range(args.max_restarts + 1):
        port = free_port()
        procs = []
        for rank in range(args.nodes):
            targs = TrainingArguments(
                output_dir=os.path.join(scratch[rank], args.run_name),
                max_steps=args.max_steps,
                save_steps=args.save_steps,
                slot_seconds=args.slot if attempt == 0 else 3600.0,
            )
            p = ctx.Process(target=run_worker, args=(rank, args.nodes, port, targs), name=f"rank{rank}", daemon=True)
            p.start()
            procs.append(p)
        log.info("attempt %d: started %d workers", attempt, len(procs))
        signal.signal(signal.SIGTERM, lambda *a: ([p.terminate() for p in procs], sys.exit(1)))
        for p in procs:
            p.join()
        codes = [p.exitcode for p in procs]
        log.info("attempt %d ended with %s", attempt, codes)
        if all(c == 0 for c in codes):
            return 0
        if any(c not in (0, PREEMPTED) for c in codes):
            return 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
