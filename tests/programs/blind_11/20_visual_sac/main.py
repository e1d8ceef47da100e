"""Discrete SAC from pixels: actor processes play, the learner keeps the replay memory."""
import argparse
import logging
import multiprocessing as mp
import queue
import time

import numpy as np
import torch

from actors import actor_loop
from learner import Learner
from memory import ReplayMemory

log = logging.getLogger("sacd")


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2 ** 20


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--memory-size", type=int, default=36000)
    parser.add_argument("--seconds", type=float, default=108)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--train-every", type=int, default=192)
    parser.add_argument("--start-steps", type=int, default=2000)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    experience = mp.Queue(maxsize=16)
    stop = mp.Event()
    actors = [mp.Process(target=actor_loop, args=(i, experience, stop), name=f"actor-{i}",
                         daemon=True) for i in range(args.actors)]
    for p in actors:
        p.start()

    memory = ReplayMemory(args.memory_size, (84, 84))
    learner = Learner()
    start = last = time.time()
    steps = updates = 0
    loss = float("nan")
    while time.time() - start < args.seconds:
        try:
            frames, actions, rewards, dones = experience.get(timeout=1.0)
        except queue.Empty:
            continue
        memory.append(frames, actions, rewards, dones)
        steps += len(frames)
        if steps > args.start_steps and updates * args.train_every < steps:
            loss = learner.update(memory.sample(args.batch_size))
            updates += 1
        if time.time() - last > 5:
            last = time.time()
            log.info("step %6d  updates %4d  loss %.4f  rss %.0f MB", steps, updates, loss, rss_mb())

    stop.set()
    end = time.time() + 5
    while any(p.is_alive() for p in actors) and time.time() < end:
        try:
            experience.get(timeout=0.2)
        except queue.Empty:
            pass
    for p in actors:
        p.join(timeout=2)
    log.info("done after %d steps, return mean %.3f", steps, float(np.mean(memory.rewards)))


if __name__ == "__main__":
    main()
