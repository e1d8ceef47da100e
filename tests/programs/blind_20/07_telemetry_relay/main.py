"""Telemetry of an antenna array: one process reads and relays frames, another one archives band powers."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

import walltime
from archive import archive_main
from relay import relay_main

log = logging.getLogger("telemetry")


class Supervisor:
    """Starts the two halves and says now and then whether they are there."""

    def __init__(self, args, folder: Path):
        self.args = args
        self.folder = folder
        self.ctx = mp.get_context("fork")
        self.procs: dict[str, mp.Process] = {}

    def start(self) -> None:
        args = self.args
        ours, theirs = self.ctx.Pipe(duplex=False)
        self._spawn("archive", archive_main, theirs, str(self.folder / "bands.f32"), args.bands,
                    args.commit_seconds, args.limit)
        port = ours.recv()
        log.info("archive listens on port %d", port)
        self._spawn("relay", relay_main, port, args.samples, args.rate, args.seed, args.limit)

    def _spawn(self, name: str, target, *params) -> None:
        proc = self.ctx.Process(target=target, args=params, name=name, daemon=True)
        proc.start()
        self.procs[name] = proc

    def watch(self, seconds: float, every: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(every)
            gone = [n for n, p in self.procs.items() if not p.is_alive()]
            if gone:
                log.error("gone: %s", ", ".join(gone))
                return
            size = (self.folder / "bands.f32").stat().st_size
            log.info("all up, archive file has %.2f MB", size / 1e6)

    def stop(self) -> None:
        for proc in self.procs.values():
            proc.terminate()
            proc.join()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--samples", type=int, default=2048, help="samples per channel in a frame")
    p.add_argument("--rate", type=float, default=120.0, help="frames a second")
    p.add_argument("--bands", type=int, default=32)
    p.add_argument("--commit-seconds", type=float, default=0.03)
    p.add_argument("--run-seconds", type=float, default=110.0)
    p.add_argument("--limit", type=float, default=125.0)
    p.add_argument("--seed", type=int, default=23)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(args.limit)
    with tempfile.TemporaryDirectory(prefix="telemetry_") as tmp:
        supervisor = Supervisor(args, Path(tmp))
        supervisor.start()
        supervisor.watch(args.run_seconds, 10.0)
        supervisor.stop()


if __name__ == "__main__":
    main()
