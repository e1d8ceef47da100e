import argparse
import logging
import multiprocessing as mp

from selfplay.actor import Actor
from selfplay.learner import Learner

log = logging.getLogger("alpha")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--steps-per-config", type=int, default=35)
    p.add_argument("--learning-rates", type=float, nargs="+", default=[1e-3, 3e-4, 1e-4])
    return p.parse_args()


def run_config(lr, args):
    trajectories = mp.Queue()
    stop = mp.Event()
    actors = [Actor(i, trajectories, stop) for i in range(args.actors)]
    for a in actors:
        a.start()
    learner = Learner(lr)
    loss = learner.train(trajectories, args.steps_per_config)
    stop.set()
    log.info("lr %g done, loss %.4f, stopping actors", lr, loss)
    for a in actors:
        a.join()
    return loss


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    args = parse_args()
    scores = {lr: run_config(lr, args) for lr in args.learning_rates}
    log.info("best learning rate %g", min(scores, key=scores.get))


if __name__ == "__main__":
    main()
