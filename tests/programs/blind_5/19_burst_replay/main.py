import argparse
import logging
import multiprocessing as mp

from replay import ReplayBuffer, act

log = logging.getLogger("learner")


class Learner:
    def __init__(self, args):
        self.args = args
        self.queue = mp.Queue(maxsize=args.queue)
        self.buffer = ReplayBuffer(args.capacity)
        self.actors = [mp.Process(target=act, args=(r, self.queue, args.episodes)) for r in range(args.actors)]

    def run(self):
        for a in self.actors:
            a.start()
        open_actors = len(self.actors)
        while open_actors:
            burst = 0
            while open_actors and burst < self.args.burst:
                _, number, episode = self.queue.get()
                if number is None:
                    open_actors -= 1
                    continue
                self.buffer.add(episode)
                burst += 1
            log.info("%d episodes, buffer %.0f MiB", self.buffer.seen, self.buffer.mib)
            if open_actors:
                self.buffer.consolidate(self.args.consolidate)
        for a in self.actors:
            a.join()
        log.info("finished after %d episodes", self.buffer.seen)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--episodes", type=int, default=240)
    p.add_argument("--queue", type=int, default=40)
    p.add_argument("--burst", type=int, default=80)
    p.add_argument("--capacity", type=int, default=320)
    p.add_argument("--consolidate", type=float, default=14)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Learner(p.parse_args()).run()
