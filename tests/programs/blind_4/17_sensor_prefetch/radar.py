"""Range-Doppler statistics over the frames of one drive."""
import argparse
import logging
import pathlib
import tempfile
import time

import numpy as np

from prefetch import Prefetch

log = logging.getLogger("radar")
SHAPE = (64, 128)


def record_drive(folder, frames):
    rng = np.random.default_rng(2)
    for n in range(frames):
        data = (rng.normal(size=SHAPE) + 1j * rng.normal(size=SHAPE)).astype(np.complex64).tobytes()
        if n == 140:
            data = data[: len(data) - 96]
        (folder / f"{n:05d}.iq").write_bytes(data)


def frames(folder):
    for path in sorted(folder.glob("*.iq")):
        raw = np.fromfile(path, dtype=np.complex64).reshape(SHAPE)
        time.sleep(0.02)
        yield path.stem, raw


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--frames", type=int, default=400)
    p.add_argument("--depth", type=int, default=8)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="drive-") as tmp:
        folder = pathlib.Path(tmp)
        record_drive(folder, args.frames)
        power = np.zeros(SHAPE)
        for n, (stem, iq) in enumerate(Prefetch(frames(folder), args.depth), 1):
            power += np.abs(np.fft.fft2(iq)) ** 2
            if n % 50 == 0:
                log.info("%d frames, last %s, mean power %.1f", n, stem, power.mean() / n)
        log.info("drive finished, peak bin %s", np.unravel_index(power.argmax(), SHAPE))


if __name__ == "__main__":
    main()
