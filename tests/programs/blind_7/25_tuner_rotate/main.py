"""Population-based tuning: the worst member is stopped and restarted from the best one.

One member is kept in reserve and only runs in every second round.
"""
import argparse
import json
import logging
import multiprocessing as mp
import random
import time
from pathlib import Path

from member import member

log = logging.getLogger("pbt")


class Population:
    def __init__(self, folder: Path, size):
        self.folder = folder
        self.size = size
        self.procs, self.lrs, self.gates = {}, {}, {}
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(size):
            self.gates[f"m{i}"] = mp.Event()
            self.gates[f"m{i}"].set()
            self.start(f"m{i}", 10 ** random.uniform(-3, -1), None)

    def start(self, name, lr, resume):
        self.lrs[name] = lr
        self.procs[name] = mp.Process(target=member, name=name,
                                      args=(name, lr, self.folder, resume, self.gates[name]))
        self.procs[name].start()

    def stop(self, name):
        self.gates[name].set()
        self.procs[name].terminate()
        self.procs[name].join()

    def scores(self):
        out = {}
        for name in self.procs:
            path = self.folder / f"{name}.json"
            if path.exists():
                try:
                    out[name] = json.loads(path.read_text())["loss"]
                except ValueError:
                    continue
        return out

    def round(self, n):
        reserve = f"m{self.size - 1}"
        if n % 2:
            self.gates[reserve].set()
        else:
            self.gates[reserve].clear()
        scores = {k: v for k, v in self.scores().items() if k != reserve}
        if len(scores) < 2:
            return
        best, worst = min(scores, key=scores.get), max(scores, key=scores.get)
        log.info("round %d: %s, %s is replaced", n, {k: round(v, 3) for k, v in scores.items()}, worst)
        self.stop(worst)
        self.start(worst, self.lrs[best] * random.choice((0.8, 1.25)), self.folder / f"{best}.pt")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=4)
    p.add_argument("--round-seconds", type=float, default=15)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--folder", type=Path, default=Path("runs"))
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    random.seed(2)
    pop = Population(args.folder, args.size)
    for n in range(args.rounds):
        time.sleep(args.round_seconds)
        pop.round(n)
    for name in list(pop.procs):
        pop.stop(name)


if __name__ == "__main__":
    main()
