import argparse
import logging
import multiprocessing as mp
import sys
import time

from cluster import cluster_sample

log = logging.getLogger("assembly")

SAMPLES = {
    "1A_0": 1900, "1B_0": 2100, "1C_0": 1600, "1D_0": 2300,
    "2E_0": 38000, "2F_0": 1800, "2G_0": 2500, "2H_0": 2000,
    "3I_0": 1700, "3J_0": 2200, "3K_0": 1500, "3L_0": 1900,
}


class Assembly:
    def __init__(self, samples, ncores, threshold, effort):
        self.samples = samples
        self.ncores = ncores
        self.threshold = threshold
        self.effort = effort
        self.stats = {}

    def progress(self, started, message):
        elapsed = int(time.time() - started)
        percent = 100 * len(self.stats) // len(self.samples)
        bar = "#" * (percent // 5)
        log.info("[%-20s] %3d%%  %s | %d:%02d:%02d", bar, percent, message, elapsed // 3600,
                 elapsed // 60 % 60, elapsed % 60)

    def _collect(self, result):
        self.stats[result["sample"]] = result

    def step3(self):
        started = time.time()
        with mp.Pool(self.ncores) as pool:
            jobs = [pool.apply_async(cluster_sample, (name, reads, self.threshold, self.effort, i), callback=self._collect)
                    for i, (name, reads) in enumerate(self.samples.items())]
            shown = -1
            while not all(job.ready() for job in jobs):
                if len(self.stats) != shown:
                    shown = len(self.stats)
                    self.progress(started, "clustering/mapping")
                time.sleep(0.5)
            for job in jobs:
                job.get()
            pool.close()
            pool.join()
        self.progress(started, "clustering/mapping")


def main():
    parser = argparse.ArgumentParser(description="de novo RAD assembly, clustering step")
    parser.add_argument("-c", "--cores", type=int, default=4)
    parser.add_argument("--clust-threshold", type=float, default=0.85)
    parser.add_argument("--effort", type=float, default=2.6, help="seconds of clustering for every 1000 reads")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    assembly = Assembly(SAMPLES, args.cores, args.clust_threshold, args.effort)
    log.info("step 3: clustering %d samples on %d cores", len(SAMPLES), args.cores)
    assembly.step3()
    for name in SAMPLES:
        s = assembly.stats[name]
        log.info("%s  clusters=%d passes=%d %.1fs", name, s["clusters"], s["passes"], s["seconds"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
