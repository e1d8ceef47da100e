import argparse
import logging
import multiprocessing as mp
import socket

import numpy as np

from learner import Learner
from wire import recv_message, send_message

log = logging.getLogger("actor")


def rollout(w, rng, steps):
    obs = rng.standard_normal((steps, w.shape[0])).astype(np.float32)
    action = (obs @ w + rng.gumbel(size=(steps, w.shape[1]))).argmax(1)
    reward = (obs[:, 0] * (action == 1) - obs[:, 1] * (action == 2)).astype(np.float32)
    return {"obs": obs, "action": action, "reward": reward}


def run_actor(port, seed, rounds, steps):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s-%(process)d %(message)s")
    rng = np.random.default_rng(seed)
    w = np.zeros((32, 4), np.float32)
    for i in range(rounds):
        batch = rollout(w, rng, steps)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            send_message(sock, batch)
            reply = recv_message(sock)
        w = reply["w"]
        log.info("round %d: weights version %d", i, int(reply["version"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--rounds", type=int, default=50)
    p.add_argument("--steps", type=int, default=2048)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s-%(process)d %(message)s")
    learner = Learner()
    actors = [mp.Process(target=run_actor, args=(learner.port, s, args.rounds, args.steps), name=f"actor-{s}")
              for s in range(args.actors)]
    for a in actors:
        a.start()
    learner.serve(args.rounds * args.actors)
    for a in actors:
        a.join()


if __name__ == "__main__":
    main()
