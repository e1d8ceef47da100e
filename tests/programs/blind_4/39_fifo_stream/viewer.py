"""Start the camera program and follow its frames."""
import argparse
import logging
import pathlib
import subprocess
import sys
import tempfile

import channels

log = logging.getLogger("viewer")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--frames", type=int, default=1500)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="stream-") as folder:
        channels.make(folder)
        camera = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("camera.py")), folder,
                                   str(args.frames)])
        log.info("camera pid %d", camera.pid)
        for number, frame in channels.Reader(folder):
            if number % 50 == 0:
                log.info("frame %d brightness %.1f", number, frame.mean())
        camera.wait()


if __name__ == "__main__":
    main()
