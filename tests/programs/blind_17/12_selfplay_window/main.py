"""Self-play training on GridHunt: actors, a replay window and one learner."""
import argparse
import logging
import multiprocessing as mp
import time

from actors import run_actor
from config import Config
from learners import run_learner
from replay import StorageManager


def parse_args():
    defaults = Config()
    p = argparse.ArgumentParser()
    p.add_argument("--num_actors", type=int, default=defaults.num_actors)
    p.add_argument("--window_size", type=int, default=defaults.window_size)
    p.add_argument("--stored_before_train", type=int, default=defaults.stored_before_train)
    p.add_argument("--training_steps", type=int, default=defaults.training_steps)
    p.add_argument("--wall_time", type=float, default=125.0, help="seconds")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    log = logging.getLogger("main")
    config = Config(num_actors=args.num_actors, window_size=args.window_size,
                    stored_before_train=args.stored_before_train, training_steps=args.training_steps)
    ctx = mp.get_context("spawn")
    manager = StorageManager(ctx=ctx)
    manager.start()
    replay, storage = manager.Replay(config), manager.Storage()
    procs = [ctx.Process(target=run_actor, args=(i, config, replay, storage), name=f"actor-{i}", daemon=True)
             for i in range(config.num_actors)]
    learner = ctx.Process(target=run_learner, args=(config, replay, storage), name="learner", daemon=True)
    for p in procs + [learner]:
        p.start()
    start = time.monotonic()
    while learner.is_alive() and time.monotonic() - start < args.wall_time:
        learner.join(10)
        s = replay.stats()
        log.info("games played %d, frames %d", s["games"], s["frames"])
    log.info("training step %d reached, shutting down", storage.get_step())
    for p in procs + [learner]:
        p.terminate()
    manager.shutdown()


if __name__ == "__main__":
    main()
