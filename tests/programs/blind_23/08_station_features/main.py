"""Short-term features of a day of seismic records: one process per network, stations one after the other.

Records arrive from the archive as raw float32 files with a small json header.
"""
import argparse
import collections
import logging
import multiprocessing as mp
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from archive import Archive, NETWORKS
from features import StationFeatures

log = logging.getLogger("stations")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--stations", type=int, default=90, help="stations per network")
    p.add_argument("--window", type=float, default=4.0, help="seconds")
    p.add_argument("--hop", type=float, default=1.0, help="seconds")
    p.add_argument("--pause", type=float, default=1.1, help="the archive grants one request per process and pause")
    p.add_argument("--time-limit", type=float, default=135.0)
    return p.parse_args()


class NetworkProcess(mp.Process):
    def __init__(self, network, folder, results, args):
        super().__init__(name=f"net-{network}", daemon=True)
        self.network = network
        self.folder = folder
        self.results = results
        self.args = args

    def run(self):
        archive = Archive(self.network, self.folder, self.args.stations)
        extractor = StationFeatures(self.args.window, self.args.hop)
        for station in archive.stations:
            began = time.monotonic()
            header, samples = archive.fetch(station)
            self.results.put((self.network, station, extractor(header, samples)))
            time.sleep(max(0.0, self.args.pause - (time.monotonic() - began)))
        self.results.put((self.network, None, None))


class Catalogue:
    """Keeps the features and knows which networks are complete."""

    def __init__(self, networks):
        self.features = collections.defaultdict(dict)
        self.open = set(networks)

    def add(self, network, station, values):
        if station is None:
            self.open.discard(network)
            log.info("network %s complete, %d stations", network, len(self.features[network]))
            return
        self.features[network][station] = values
        if len(self.features[network]) % 5 == 0:
            counts = " ".join(f"{n}:{len(s)}" for n, s in sorted(self.features.items()))
            log.info("%s.%s rms %.2f kurtosis %.2f | %s", network, station, values["rms"], values["kurtosis"], counts)


def time_limit(seconds):
    time.sleep(seconds)
    os._exit(1)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                        format="%(asctime)s %(processName)s %(levelname)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="stations_") as folder:
        results = mp.Queue()
        processes = [NetworkProcess(n, Path(folder), results, args) for n in NETWORKS]
        for p in processes:
            p.start()
        threading.Thread(target=time_limit, args=(args.time_limit,), daemon=True).start()
        catalogue = Catalogue(NETWORKS)
        while catalogue.open:
            catalogue.add(*results.get())
        for p in processes:
            p.join()
    log.info("all networks complete")


if __name__ == "__main__":
    main()
