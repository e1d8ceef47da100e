import argparse, logging, multiprocessing as mp, time
from multiprocessing.managers import BaseManager
import numpy as np

class ReplayBuffer:
    def __init__(self, cap): self.cap, self.rows = cap, []
    def add(self, rows):
        self.rows.extend(rows)
        del self.rows[:-self.cap]
    def sample(self, n):
        idx = np.random.randint(0, len(self.rows), n)
        return [self.rows[i] for i in idx]
    def size(self): return len(self.rows)

class BufferManager(BaseManager): pass
BufferManager.register("ReplayBuffer", ReplayBuffer)

def actor(rank, buf):
    rng = np.random.default_rng(rank)
    while True:
        buf.add([{"obs": rng.integers(0, 255, (84, 84), dtype=np.uint8), "act": 0, "rew": 0.0} for _ in range(32)])
        time.sleep(0.3)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=1024)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    man = BufferManager(); man.start()
    buf = man.ReplayBuffer(4000)
    for i in range(a.actors):
        mp.Process(target=actor, args=(i, buf), daemon=True).start()
    while buf.size() < 200: time.sleep(0.1)
    w, t0, step = np.zeros(84), time.time(), 0
    while time.time() - t0 < 110:
        batch = buf.sample(a.batch_size)
        obs = np.stack([r["obs"] for r in batch])
        w += 1e-6 * obs[:, 0].mean(0)
        step += 1
        if step % 10 == 0:
            logging.info("step %d, %.1f steps/s", step, step / (time.time() - t0))

if __name__ == "__main__":
    main()
