import argparse
import logging
import sys

import torch
import torch.multiprocessing as mp

from actor import actor_loop
from learner import Learner

log = logging.getLogger("main")


def parse_args():
    ap = argparse.ArgumentParser(description="Asynchronous actor-critic on frames, actors on the GPU")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--actors", type=int, default=2)
    ap.add_argument("--rollout-length", type=int, default=40)
    ap.add_argument("--step-time", type=float, default=0.02)
    ap.add_argument("--updates", type=int, default=20000)
    ap.add_argument("--sync-every", type=int, default=8)
    return ap.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(2)
    ctx = mp.get_context("spawn")
    trajectories = ctx.Queue(maxsize=8)
    weight_queues = [ctx.Queue() for _ in range(args.actors)]
    actors = [
        ctx.Process(
            target=actor_loop,
            args=(i, args.device, args.rollout_length, args.step_time, weight_queues[i], trajectories),
            daemon=True,
        )
        for i in range(args.actors)
    ]
    for p in actors:
        p.start()
    learner = Learner(args.device)
    mean_reward = 0.0
    for update in range(1, args.updates + 1):
        trajectory = trajectories.get()
        loss = learner.update(trajectory)
        mean_reward = 0.95 * mean_reward + 0.05 * sum(trajectory[-1])
        if update % args.sync_every == 0:
            state = learner.weights()
            for q in weight_queues:
                q.put(state)
            log.info("update %d loss %.3f mean reward %.2f", update, loss, mean_reward)
    for (actor_id, episode), (total, _) in learner.book.best():
        log.info("best episodes: actor %d episode %d reward %.1f", actor_id, episode, total)
    for p in actors:
        p.terminate()


if __name__ == "__main__":
    main()
