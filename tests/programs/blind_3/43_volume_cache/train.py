import argparse, logging, random, threading, time
import numpy as np
import torch

class VolumeCache:
    """Keeps `capacity` volumes in RAM, replacing the oldest while training samples from it."""
    def __init__(self, capacity, side):
        self.capacity, self.side, self.items, self.lock, self.loaded = capacity, side, [], threading.Lock(), 0
        threading.Thread(target=self._fill, daemon=True, name="loader").start()
    def _fill(self):
        rng = np.random.default_rng(0)
        while True:
            v = rng.standard_normal((self.side,) * 3, dtype=np.float32)
            with self.lock:
                self.items.append(v)
                self.loaded += 1
                if len(self.items) > self.capacity:
                    self.items.pop(0)
            time.sleep(0.15)
    def sample(self, patch):
        with self.lock:
            v = random.choice(self.items)
        z, y, x = (random.randrange(self.side - patch) for _ in range(3))
        return torch.from_numpy(v[z:z + patch, y:y + patch, x:x + patch].copy())

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--capacity", type=int, default=100)
    p.add_argument("--side", type=int, default=96)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    cache = VolumeCache(a.capacity, a.side)
    while not cache.items: time.sleep(0.1)
    net = torch.nn.Conv3d(1, 4, 3)
    t_end, step = time.time() + 110, 0
    while time.time() < t_end:
        x = torch.stack([cache.sample(24) for _ in range(4)])[:, None]
        loss = net(x).pow(2).mean(); loss.backward(); net.zero_grad()
        step += 1
        if step % 100 == 0:
            logging.info("step %d loss %.3f, %d volumes in ram", step, loss.item(), len(cache.items))
        time.sleep(0.01)

if __name__ == "__main__":
    main()
