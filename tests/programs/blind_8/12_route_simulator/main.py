import argparse
import logging
import multiprocessing as mp
import time

from routes import RouteWorker, build_distances

log = logging.getLogger("routes")


class Simulation:
    def __init__(self, args):
        self.manager = mp.Manager()
        self.distances = self.manager.list(build_distances(args.stops))
        self.results = mp.Queue()
        self.workers = [
            RouteWorker(i, self.distances, args.stops, self.results) for i in range(args.workers)
        ]

    def run(self, routes):
        for w in self.workers:
            w.start()
        start = time.time()
        best = float("inf")
        for n in range(1, routes + 1):
            best = min(best, self.results.get())
            if n % 10 == 0:
                log.info("%d routes, best %.1f, %.2f routes/s", n, best, n / (time.time() - start))
        for w in self.workers:
            w.terminate()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stops", type=int, default=160)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--routes", type=int, default=50000)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Simulation(args).run(args.routes)


if __name__ == "__main__":
    main()
