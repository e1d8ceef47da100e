"""Hyper-parameter search: the coordinator keeps the study, worker processes evaluate the trials."""
import argparse
import logging
import time
from multiprocessing.connection import wait

import torch.multiprocessing as mp

from objective import run_worker
from study import Study, load_history

log = logging.getLogger("search")


class Coordinator:
    def __init__(self, study, num_workers):
        self.study = study
        self.conns = []
        self.procs = []
        for idx in range(num_workers):
            ours, theirs = mp.Pipe()
            proc = mp.Process(target=run_worker, args=(idx, theirs), name=f"trial-worker-{idx}", daemon=True)
            proc.start()
            theirs.close()
            self.conns.append(ours)
            self.procs.append(proc)

    def run(self, n_trials):
        finished = 0
        begin = last = time.time()
        while finished < n_trials:
            for conn in wait(self.conns):
                kind, payload = conn.recv()
                if kind == "ask":
                    conn.send(self.study.ask())
                elif kind == "tell":
                    number, value, curve = payload
                    self.study.tell(number, value, curve)
                    finished += 1
                    log.info("trial %d finished with %.4f, best is trial %d with %.4f",
                             number, value, self.study.best_trial.number, self.study.best_trial.value)
                if time.time() - last > 10:
                    last = time.time()
                    log.info("%d trials in %.0f s", finished, last - begin)
        for proc in self.procs:
            proc.terminate()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--trials", type=int, default=100000)
    p.add_argument("--history", type=int, default=500, help="trials of the earlier study to continue from")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    study = Study(seed=args.seed)
    load_history(study, args.history)
    log.info("continuing a study of %d trials", len(study.trials))
    Coordinator(study, args.workers).run(args.trials)


if __name__ == "__main__":
    main()
