import argparse
import logging
import multiprocessing as mp
import time

from station.capture import Camera
from station.archive import Archiver

log = logging.getLogger("station")


class Station:
    def __init__(self, cameras, fps):
        self.records = mp.Queue()
        self.stop = mp.Event()
        self.archiver = Archiver(self.records)
        self.cameras = [Camera(i, self.records, self.stop, fps) for i in range(cameras)]

    def run(self, duration):
        self.archiver.start()
        for c in self.cameras:
            c.start()
        end = time.time() + duration
        while time.time() < end:
            time.sleep(5)
            log.info("capturing: %d cameras up, archiver %s", sum(c.is_alive() for c in self.cameras), self.archiver.is_alive())
        self.stop.set()
        for c in self.cameras:
            c.join()
        self.records.put(None)
        self.archiver.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cameras", type=int, default=2)
    p.add_argument("--fps", type=float, default=40)
    p.add_argument("--duration", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Station(args.cameras, args.fps).run(args.duration)


if __name__ == "__main__":
    main()
