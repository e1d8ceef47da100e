"""Analysis engine: two searches share one evaluation server."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
from multiprocessing.connection import wait

from search import search_process

log = logging.getLogger("engine")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--searches", type=int, default=2)
    p.add_argument("--visits", type=int, default=480, help="visits for each move")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--visits-per-second", type=float, default=140.0, help="of each search")
    p.add_argument("--cache-mb", type=int, default=180)
    p.add_argument("--seconds", type=float, default=115.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    links = []
    for number in range(args.searches):
        here, there = mp.Pipe()
        mp.Process(target=search_process, args=(number, there, args), name=f"search-{number}", daemon=True).start()
        there.close()
        links.append(here)
    timer = threading.Timer(args.seconds + 20, os._exit, args=(0,))
    timer.daemon = True
    timer.start()

    from evaluator import Evaluator
    evaluator = Evaluator(args.cache_mb)
    log.info("evaluator ready, %d searches", len(links))
    while links:
        for link in wait(links):
            message = link.recv()
            if message is None:
                links.remove(link)
            elif message[0] == "move":
                _, number, moves, (value, point) = message
                log.info("search %d: move %d at %d, value %.3f", number, moves, point, value)
            else:
                link.send(evaluator.evaluate(message))
    log.info("done")


if __name__ == "__main__":
    main()
