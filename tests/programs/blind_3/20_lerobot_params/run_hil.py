import argparse
import logging
import multiprocessing as mp

from actor import Actor
from learner import run_learner


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fps", type=int, default=30)
    ap.add_argument("--episode-steps", type=int, default=90)
    ap.add_argument("--push-seconds", type=float, default=0.08)
    ap.add_argument("--max-time", type=float, default=85)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    queue = mp.Queue()
    learner = mp.Process(target=run_learner, args=(queue, args.push_seconds), name="learner", daemon=True)
    learner.start()
    Actor(queue, args.fps).run(args.episode_steps, args.max_time)
    learner.terminate()
    learner.join()


if __name__ == "__main__":
    main()
