import argparse, logging, subprocess, sys, time

class WorkerPool:
    def __init__(self, n): self.n, self.pids, self.restarted = n, [], []
    def start(self):
        self.pids = [subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"]) for _ in range(self.n)]
    def stop(self):
        for p in self.pids: p.terminate()
        self.restarted.extend(self.pids)

def main():
    p = argparse.ArgumentParser(); p.add_argument("--workers", type=int, default=3)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    pool, end = WorkerPool(a.workers), time.time() + 110
    calc = 0
    while time.time() < end:
        pool.start(); time.sleep(2); pool.stop()
        calc += 1
        logging.info("calculation %d done, %d workers used", calc, len(pool.restarted))

if __name__ == "__main__":
    main()
