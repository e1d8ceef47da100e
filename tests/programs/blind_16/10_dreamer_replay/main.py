"""World-model training: actor processes fill a replay buffer, the learner samples from it."""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import logging
import multiprocessing as mp
import time

from actor import actor
from learner import Learner
from replay import Replay

log = logging.getLogger("dreamer")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--replay-size", type=int, default=30_000, help="environment steps")
    p.add_argument("--chunk", type=int, default=64)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--train-every", type=int, default=192, help="environment steps per update")
    p.add_argument("--log-every", type=float, default=5.0)
    p.add_argument("--duration", type=float, default=110.0, help="seconds")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    ctx = mp.get_context("fork")
    chunks = ctx.Queue(maxsize=2 * args.actors)
    stop = ctx.Event()
    actors = [ctx.Process(target=actor, args=(i, args.chunk, chunks, stop), name=f"actor-{i}", daemon=True)
              for i in range(args.actors)]
    for process in actors:
        process.start()

    replay = Replay(args.replay_size, args.chunk)
    learner = Learner(args.batch_size)
    steps, owed, updates = 0, 0, 0
    start = shown = time.monotonic()
    while time.monotonic() - start < args.duration:
        chunk = chunks.get()
        replay.add(chunk)
        steps += args.chunk
        owed += args.chunk
        while owed >= args.train_every:
            owed -= args.train_every
            learner.update(replay.sample(args.batch_size))
            updates += 1
        if time.monotonic() - shown > args.log_every:
            shown = time.monotonic()
            log.info("step %d, replay %d (%.0f MB), updates %d, loss %.4f",
                     steps, len(replay), replay.nbytes / 2**20, updates, learner.loss)
    stop.set()
    for process in actors:
        while process.is_alive():
            try:
                chunks.get(timeout=0.1)
            except Exception:
                pass
        process.join()
    log.info("done: %d steps, %d updates", steps, updates)


if __name__ == "__main__":
    main()
