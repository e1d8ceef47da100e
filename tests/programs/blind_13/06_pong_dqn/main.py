"""DQN with a few environment processes and one learner."""
import argparse
import logging
import multiprocessing as mp
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from actor import run_actor
from agent import DQNAgent
from replay_buffer import ReplayBuffer

log = logging.getLogger("learner")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--steps", type=int, default=2_000_000)
    p.add_argument("--replay-start-size", type=int, default=800)
    p.add_argument("--replay-capacity", type=int, default=3000)
    p.add_argument("--update-interval", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--target-update-interval", type=int, default=500)
    p.add_argument("--frame-delay", type=float, default=0.01, help="emulator time per step")
    p.add_argument("--log-interval", type=float, default=5.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    transitions = ctx.Queue(maxsize=64)
    actors = [ctx.Process(target=run_actor, args=(i, transitions, args.frame_delay), name=f"actor-{i}", daemon=True)
              for i in range(args.actors)]
    for a in actors:
        a.start()

    agent = DQNAgent(gamma=args.gamma, target_update_interval=args.target_update_interval)
    buffer = ReplayBuffer(args.replay_capacity)
    steps = updates = 0
    last = time.monotonic(), 0, 0
    while steps < args.steps:
        buffer.append(transitions.get())
        steps += 1
        if len(buffer) >= args.replay_start_size and steps % args.update_interval == 0:
            agent.update(buffer.sample(args.batch_size))
            updates += 1
        now = time.monotonic()
        if now - last[0] >= args.log_interval:
            dt = now - last[0]
            log.info("steps %d (%.1f/s) updates %d (%.2f/s) replay %d loss %s", steps, (steps - last[1]) / dt,
                     updates, (updates - last[2]) / dt, len(buffer), agent.last_loss)
            last = now, steps, updates


if __name__ == "__main__":
    main()
