import argparse, logging, subprocess, sys, time

class Worker:
    def __init__(self, i): self.i, self.tasks = i, []
    def launch(self, t): self.tasks.append(subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({t})"]))
    def reap(self):
        done = [p for p in self.tasks if p.poll() is not None]
        self.tasks = [p for p in self.tasks if p.returncode is None]
        return len(done)

def main():
    p = argparse.ArgumentParser(); p.add_argument("--heartbeat", type=float, default=8)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    w = Worker(0)
    end = time.time() + 110
    while time.time() < end:
        for t in (0.5, 1, 2, 3): w.launch(t)
        time.sleep(a.heartbeat)
        logging.info("heartbeat: %d tasks finished", w.reap())

if __name__ == "__main__":
    main()
