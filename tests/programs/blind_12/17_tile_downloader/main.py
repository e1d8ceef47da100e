"""Computes per-tile statistics of map regions for the training set, several regions at a time."""
import argparse
import logging
import multiprocessing as mp
import time

from tiles import RegionFetcher, TileSource

log = logging.getLogger("regions")


def make_catalog(n):
    catalog = []
    for i in range(n):
        if i >= 24 and i % 4 == 0:
            catalog.append({"name": f"region{i:03d}", "tiles": 12, "size": 1024})
        elif i % 3 == 2:
            catalog.append({"name": f"region{i:03d}", "tiles": 2, "size": 1024})
        else:
            catalog.append({"name": f"region{i:03d}", "tiles": 16, "size": 512})
    return catalog


def region_worker(tasks, results, threads, latency):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    fetcher = RegionFetcher(TileSource(latency), workers=threads)
    for spec in iter(tasks.get, None):
        started = time.perf_counter()
        stats = fetcher.fetch_region(spec["name"], spec["tiles"], spec["size"])
        results.put((spec["name"], stats.mean(axis=0).round(2).tolist(), time.perf_counter() - started))
    fetcher.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--regions", type=int, default=240)
    parser.add_argument("--latency", type=float, default=0.12)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    tasks, results = mp.Queue(), mp.Queue()
    workers = [mp.Process(target=region_worker, args=(tasks, results, args.threads, args.latency),
                          name=f"region-worker-{i}") for i in range(args.workers)]
    for w in workers:
        w.start()
    catalog = make_catalog(args.regions)
    for spec in catalog:
        tasks.put(spec)
    for _ in workers:
        tasks.put(None)
    for done in range(len(catalog)):
        name, stats, took = results.get()
        log.info("%d/%d %s %s %.2fs", done + 1, len(catalog), name, stats, took)
    for w in workers:
        w.join()


if __name__ == "__main__":
    main()
