"""Local stand-in of the waveform archive: makes the record of a station when it is asked for."""
import json

import numpy as np

NETWORKS = ["GR", "CH", "IV"]
RATE = 20.0
DAY = 24 * 3600
OUTAGES = {("CH", 11): 0.07}


class Archive:
    def __init__(self, network, folder, count):
        self.network = network
        self.folder = folder / network
        self.folder.mkdir()
        self.stations = [f"{network}{i:03d}" for i in range(count)]

    def _record(self, station):
        """Makes the record of one day with its header."""
        number = int(station[-3:])
        npts = int(DAY * RATE)
        fraction = OUTAGES.get((self.network, number), 1.0)
        rng = np.random.default_rng([NETWORKS.index(self.network), number])
        noise = rng.standard_normal(int(npts * fraction), dtype=np.float32)
        samples = np.cumsum(noise) * np.float32(0.02) + noise
        path = self.folder / f"{station}.raw"
        samples.astype("<f4").tofile(path)
        header = {"station": station, "npts": npts, "sampling_rate": RATE, "channel": "BHZ"}
        path.with_suffix(".json").write_text(json.dumps(header))
        return path

    def fetch(self, station):
        path = self._record(station)
        header = json.loads(path.with_suffix(".json").read_text())
        samples = np.memmap(path, dtype="<f4", mode="r")
        path.unlink()
        return header, samples
