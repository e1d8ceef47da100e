import argparse, logging, multiprocessing as mp, time
from multiprocessing.shared_memory import SharedMemory
import numpy as np

class Publisher:
    def __init__(self, conn): self.conn = conn
    def send(self, frame):
        shm = SharedMemory(create=True, size=frame.nbytes)
        np.ndarray(frame.shape, frame.dtype, buffer=shm.buf)[:] = frame
        self.conn.send((shm.name, frame.shape, str(frame.dtype)))
        shm.close()

def consume(conn):
    while True:
        name, shape, dtype = conn.recv()
        shm = SharedMemory(name)
        mean = float(np.ndarray(shape, dtype, buffer=shm.buf).mean())
        shm.close()
        conn.send(mean)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fps", type=float, default=8)
    p.add_argument("--frames", type=int, default=900)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    here, there = mp.Pipe()
    mp.Process(target=consume, args=(there,), daemon=True, name="consumer").start()
    pub = Publisher(here)
    rng = np.random.default_rng(0)
    for k in range(a.frames):
        pub.send(rng.integers(0, 255, (360, 640, 3), dtype=np.uint8))
        mean = here.recv()
        if k % 40 == 0:
            logging.info("frame %d mean %.2f", k, mean)
        time.sleep(1 / a.fps)

if __name__ == "__main__":
    main()
