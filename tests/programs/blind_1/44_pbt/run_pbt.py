"""Population based training: the worst member is stopped and replaced by a mutation of the best."""
import argparse
import logging
import multiprocessing as mp
import queue
import random
import time

from population import member, smoke_test

log = logging.getLogger("pbt")


class Population:
    def __init__(self, n):
        self.lrs = [10 ** random.uniform(-4, -1) for _ in range(n)]
        self.reports = [mp.Queue() for _ in range(n)]
        self.best = [(float("inf"), None)] * n
        self.procs = [None] * n
        for i in range(n):
            self.start(i, None)

    def start(self, i, blob):
        self.reports[i] = mp.Queue()
        self.procs[i] = mp.Process(target=member, args=(i, self.lrs[i], blob, self.reports[i]), name=f"member-{i}",
                                   daemon=True)
        self.procs[i].start()

    def poll(self):
        for i, q in enumerate(self.reports):
            try:
                while True:
                    _, loss, blob = q.get_nowait()
                    self.best[i] = (loss, blob)
            except queue.Empty:
                pass

    def exploit(self):
        if any(loss == float("inf") for loss, _ in self.best):
            log.info("waiting for the first report of every member")
            return
        order = sorted(range(len(self.lrs)), key=lambda i: self.best[i][0])
        good, bad = order[0], order[-1]
        self.procs[bad].terminate()
        self.procs[bad].join()
        self.lrs[bad] = self.lrs[good] * random.choice([0.5, 1.0, 2.0])
        self.start(bad, self.best[good][1])
        log.info("member %d (loss %.4f) replaced by member %d (loss %.4f), lr %.2g", bad, self.best[bad][0], good,
                 self.best[good][0], self.lrs[bad])
        self.best[bad] = self.best[good]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--members", type=int, default=4)
    ap.add_argument("--interval", type=float, default=6)
    ap.add_argument("--seconds", type=float, default=150)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    random.seed(0)
    smoke_test()
    pop, t0 = Population(args.members), time.time()
    while time.time() - t0 < args.seconds:
        time.sleep(args.interval)
        pop.poll()
        pop.exploit()


if __name__ == "__main__":
    main()
