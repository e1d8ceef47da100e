import logging
import os
import tarfile
import time

import numpy as np

from store import RequestStore

log = logging.getLogger("engine")


class Policy:
    def __init__(self, megabytes, shards=6):
        rng = np.random.default_rng(0)
        n = megabytes * 2 ** 20 // 4 // shards
        self.weights = {f"layer{i}": rng.standard_normal(n, dtype=np.float32) for i in range(shards)}

    def train_step(self):
        for w in self.weights.values():
            w[:4096] *= 0.999
        time.sleep(0.05)

    def save(self, path):
        for name, w in self.weights.items():
            np.save(os.path.join(path, name + ".npy"), w)


def pack(folder, archive):
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        tar.add(folder, arcname="policy")
    return os.path.getsize(archive)


class Engine:
    def __init__(self, db, workdir, megabytes):
        self.store = RequestStore(db)
        self.policy = Policy(megabytes)
        self.folder = os.path.join(workdir, "policy")
        self.archive = os.path.join(workdir, "policy.tar.gz")
        os.makedirs(self.folder, exist_ok=True)
        self.step = 0

    def train_for(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            self.policy.train_step()
            self.step += 1

    def checkpoint(self):
        t0 = time.time()
        with self.store.session() as db:
            row = db.execute("INSERT INTO checkpoints(step, path, updated) VALUES(?, ?, ?)",
                             (self.step, self.archive, time.time())).lastrowid
            self.policy.save(self.folder)
            size = pack(self.folder, self.archive)
            db.execute("UPDATE checkpoints SET size=?, updated=? WHERE id=?", (size, time.time(), row))
        log.info("checkpoint of step %d: %.0f MB in %.1f s", self.step, size / 2 ** 20, time.time() - t0)


def engine_main(db, workdir, megabytes, train_seconds):
    engine = Engine(db, workdir, megabytes)
    engine.train_for(4.0)
    while True:
        engine.train_for(train_seconds)
        engine.checkpoint()
