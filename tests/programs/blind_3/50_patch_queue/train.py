import argparse, logging, random, time
import numpy as np
import torch

class Queue:
    def __init__(self, volumes, max_length, per_volume):
        self.volumes, self.max_length, self.per_volume, self.patches = volumes, max_length, per_volume, []
    def _load(self, i):
        v = np.random.default_rng(i).standard_normal((96, 96, 96), dtype=np.float32)
        f = np.fft.rfftn(v)
        return np.fft.irfftn(f * np.exp(-0.01 * np.abs(f.real)), s=v.shape).astype("float32")
    def _fill(self):
        while len(self.patches) < self.max_length:
            v = self._load(random.choice(self.volumes))
            for _ in range(self.per_volume):
                z, y, x = np.random.randint(0, 64, 3)
                self.patches.append(v[z:z + 32, y:y + 32, x:x + 32].copy())
        random.shuffle(self.patches)
    def __iter__(self):
        while True:
            if not self.patches: self._fill()
            yield torch.from_numpy(self.patches.pop())

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--queue-length", type=int, default=100)
    p.add_argument("--samples-per-volume", type=int, default=10)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    net = torch.nn.Conv3d(1, 2, 3)
    it, end, step = iter(Queue(range(100), a.queue_length, a.samples_per_volume)), time.time() + 110, 0
    while time.time() < end:
        x = torch.stack([next(it) for _ in range(4)])[:, None]
        net(x).pow(2).mean().backward(); net.zero_grad()
        step += 1
        logging.info("step %d", step)

if __name__ == "__main__":
    main()
