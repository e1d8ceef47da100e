"""File archive of samples, split into suites. A suite is published as one index file."""
import json
from pathlib import Path

import numpy as np
import torch


class Archive:
    def __init__(self, root, suites, features, ctx):
        self.root = Path(root)
        self.suites = list(suites)
        self.features = features
        self.expire_lock = ctx.Lock()
        self.publish_locks = {suite: ctx.Lock() for suite in self.suites}
        for suite in self.suites:
            (self.root / suite).mkdir(parents=True)

    def fill(self, count):
        for suite in self.suites:
            for i in range(count):
                self.add(suite, i)
            self.publish(suite)

    def add(self, suite, number):
        rng = np.random.default_rng([number, self.suites.index(suite)])
        x = rng.normal(size=self.features).astype(np.float32)
        np.save(self.root / suite / f"{number:08d}.npy", np.append(x, x[:8].sum()))

    def names(self, suite):
        return sorted(p.name for p in (self.root / suite).glob("*.npy"))

    def publish(self, suite):
        tmp = self.root / f"{suite}.json.new"
        tmp.write_text(json.dumps(self.names(suite)))
        tmp.rename(self.root / f"{suite}.json")

    def load_batch(self, suite, size):
        with self.publish_locks[suite]:
            index = json.loads((self.root / f"{suite}.json").read_text())
            picks = np.random.choice(len(index), size=size)
            rows = np.stack([np.load(self.root / suite / index[i]) for i in picks])
        return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, -1])
