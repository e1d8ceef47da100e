import argparse, logging, random, subprocess, sys, time

class Job:
    def __init__(self, name, work):
        self.name, self.work = name, work
    def start(self):
        code = f"import time; time.sleep({random.uniform(0.2, 0.8):.2f})"
        self.work = subprocess.Popen([sys.executable, "-S", "-c", code])
        return self

class Manager:
    def __init__(self, interval): self.interval, self.history, self.sizes = interval, [], []
    def run(self, n):
        for k in range(n):
            self.history.append(Job(f"plot-{k}", None).start())
            self.sizes.append(random.gauss(101.4, 0.1))
            if k % 5 == 0:
                logging.info("started %s, mean size %.1f GiB", self.history[-1].name, sum(self.sizes) / len(self.sizes))
            time.sleep(self.interval)

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--interval", type=float, default=0.5)
    p.add_argument("--jobs", type=int, default=220)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Manager(a.interval).run(a.jobs)
