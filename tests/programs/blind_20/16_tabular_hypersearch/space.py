"""Search space and the suggestion algorithm."""
import dataclasses
import math
import random

STATUS_OK = "ok"
STATUS_FAIL = "fail"


@dataclasses.dataclass
class Space:
    lr: tuple = (1e-4, 1e-2)
    width: tuple = (512, 640)
    depth: tuple = (2, 3)
    dropout: tuple = (0.0, 0.5)
    batch_size: tuple = (64, 128)

    def sample(self, rng):
        return {"lr": math.exp(rng.uniform(math.log(self.lr[0]), math.log(self.lr[1]))),
                "width": rng.choice(self.width), "depth": rng.choice(self.depth),
                "dropout": rng.uniform(*self.dropout), "batch_size": rng.choice(self.batch_size)}


class Trials:
    """History of a search; the suggestions are drawn near the best trials."""

    def __init__(self, space, seed, gamma=0.2, startup=20):
        self.space = space
        self.rng = random.Random(seed)
        self.gamma = gamma
        self.startup = startup
        self.trials = []

    def __len__(self):
        return len(self.trials)

    def losses(self):
        return [t["result"]["loss"] for t in self.trials if t["result"]["status"] == STATUS_OK]

    def record(self, tid, params, result):
        self.trials.append({"tid": tid, "misc": params, "result": result})

    def best(self):
        good = [t for t in self.trials if t["result"]["status"] == STATUS_OK]
        return min(good, key=lambda t: t["result"]["loss"])

    def suggest(self):
        if len(self.trials) < self.startup:
            return self.space.sample(self.rng)
        ranked = sorted((t for t in self.trials if t["result"]["status"] == STATUS_OK),
                        key=lambda t: t["result"]["loss"])
        parent = self.rng.choice(ranked[: max(1, int(self.gamma * len(ranked)))])["misc"]
        fresh = self.space.sample(self.rng)
        child = {k: (parent[k] if self.rng.random() < 0.6 else fresh[k]) for k in parent}
        child["lr"] *= math.exp(self.rng.gauss(0, 0.2))
        return child
