"""Policy decision service: a few workers on one socket and a load generator that asks them."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import socket
import tempfile
import time
import urllib.request

from worker import worker_main

log = logging.getLogger("main")


def ask(port, user):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/decide/{user}", timeout=30) as reply:
        return json.load(reply)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--duration", type=float, default=105)
    parser.add_argument("--policy-interval", type=float, default=12)
    parser.add_argument("--rate", type=float, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    lock_path = os.path.join(tempfile.mkdtemp(prefix="policy_"), "leader.lock")
    version = mp.Value("i", 1)
    workers = [mp.Process(target=worker_main, name=f"server-{i}",
                          args=(listener, lock_path, version, args.policy_interval)) for i in range(args.workers)]
    for w in workers:
        w.start()

    end, asked, allowed = time.monotonic() + args.duration, 0, 0
    while time.monotonic() < end:
        reply = ask(port, f"user{random.randrange(10000)}")
        asked += 1
        allowed += reply["allow"]
        if asked % 80 == 0:
            log.info("%d decisions, %.0f%% allowed, policy version %d", asked, 100 * allowed / asked, reply["policy"])
        time.sleep(1 / args.rate)
    for w in workers:
        w.terminate()
        w.join()
    log.info("done after %d decisions", asked)


if __name__ == "__main__":
    main()
