import argparse
import logging
import multiprocessing as mp

from agent import run_agent
from engine import run_engine


def parse_args():
    p = argparse.ArgumentParser(description="serve a chat model to a set of agents")
    p.add_argument("--agents", type=int, default=3)
    p.add_argument("--num-blocks", type=int, default=41)
    p.add_argument("--block-size", type=int, default=16)
    p.add_argument("--max-model-len", type=int, default=2048)
    p.add_argument("--max-num-seqs", type=int, default=8)
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--turns", type=int, nargs=2, default=(8, 20))
    p.add_argument("--system-tokens", type=int, default=200)
    p.add_argument("--user-tokens", type=int, nargs=2, default=(10, 60))
    p.add_argument("--think", type=float, default=0.3)
    p.add_argument("--stats-interval", type=float, default=5.0)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    ctx = mp.get_context("fork")
    inbox = ctx.Queue()
    outboxes = [ctx.Queue() for _ in range(args.agents)]
    procs = [ctx.Process(target=run_engine, args=(args, inbox, outboxes), name="EngineCore", daemon=True)]
    procs += [ctx.Process(target=run_agent, args=(i, args, inbox, outboxes[i]), name=f"Agent-{i}", daemon=True)
              for i in range(args.agents)]
    for proc in procs:
        proc.start()
    logging.info("engine pid %d, %d agents", procs[0].pid, args.agents)
    for proc in procs:
        proc.join()


if __name__ == "__main__":
    main()
