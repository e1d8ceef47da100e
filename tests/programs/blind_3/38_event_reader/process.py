import argparse, logging, multiprocessing as mp, time
import numpy as np

log = logging.getLogger("pax")

class InputPlugin:
    def __init__(self, n, samples): self.n, self.samples = n, samples
    def events(self):
        base = np.random.default_rng(0).integers(0, 2**14, self.samples, dtype=np.int16)
        for i in range(self.n):
            time.sleep(0.004)
            yield i, np.roll(base, i)

def read(plugin, out):
    for ev in plugin.events():
        out.put(ev)
    out.put(None)

def process(tasks, results):
    while (ev := tasks.get()) is not None:
        i, wf = ev
        time.sleep(0.05)
        results.put((i, float(np.abs(np.fft.rfft(wf[:4096])).max())))

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--events", type=int, default=20000)
    p.add_argument("--cpus", type=int, default=2)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    tasks, results = mp.Queue(), mp.Queue()
    mp.Process(target=read, args=(InputPlugin(a.events, 40000), tasks), name="input").start()
    for i in range(a.cpus):
        mp.Process(target=process, args=(tasks, results), name=f"worker-{i}").start()
    for n in range(a.events):
        i, peak = results.get()
        if n % 100 == 0:
            log.info("event %d peak %.1f", i, peak)

if __name__ == "__main__":
    main()
