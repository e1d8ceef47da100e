"""Decode a directory of raw sensor captures into feature files with a pool of processes."""
import argparse
import concurrent.futures as cf
import multiprocessing as mp
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import walltime
from log_setup import attach_worker_logger, parent_logger, start_listener

HEADER = struct.Struct("<4sIIf")
MAGIC = b"CAP1"

_logger = None
_out_dir = None


@dataclass
class CaptureReport:
    name: str
    frames: int
    rms: float
    seconds: float


def write_captures(root: Path, count: int, channels: int, samples: int, seed: int) -> list[Path]:
    rng = np.random.default_rng(seed)
    paths = []
    for i in range(count):
        data = rng.normal(0, 1 + 0.05 * i, size=(channels, samples)).astype(np.float32)
        path = root / f"capture_{i:04d}.bin"
        with open(path, "wb") as fh:
            fh.write(HEADER.pack(MAGIC, channels, samples, 48_000.0))
            fh.write(data.tobytes())
        paths.append(path)
    return paths


def read_capture(path: Path):
    with open(path, "rb") as fh:
        magic, channels, samples, rate = HEADER.unpack(fh.read(HEADER.size))
        if magic != MAGIC:
            raise ValueError(f"{path} is not a capture")
        data = np.frombuffer(fh.read(), dtype=np.float32).reshape(channels, samples)
    return data, rate


def spectrogram(data: np.ndarray, window: int, hop: int) -> np.ndarray:
    taper = np.hanning(window).astype(np.float32)
    starts = range(0, data.shape[1] - window, hop)
    frames = np.stack([data[:, s:s + window] * taper for s in starts], axis=1)
    return np.log1p(np.abs(np.fft.rfft(frames, axis=-1)))


def init_worker(log_queue, level: str, out_dir: str, limit: float) -> None:
    global _logger, _out_dir
    walltime.arm(limit)
    _logger = attach_worker_logger(log_queue, level)
    _out_dir = Path(out_dir)


def decode(path: str, window: int, hop: int) -> CaptureReport:
    started = time.perf_counter()
    path = Path(path)
    data, rate = read_capture(path)
    spec = spectrogram(data, window, hop)
    np.save(_out_dir / (path.stem + ".npy"), spec)
    _logger.info("decoded %s: %d channels at %.0f Hz, %d frames", path.name, data.shape[0], rate, spec.shape[1])
    return CaptureReport(path.name, spec.shape[1], float(np.sqrt((data ** 2).mean())), time.perf_counter() - started)


class Ingest:
    def __init__(self, args, log):
        self.args = args
        self.log = log
        self.reports: list[CaptureReport] = []

    def run(self, paths: list[Path], out_dir: Path, log_queue) -> None:
        args = self.args
        with cf.ProcessPoolExecutor(
            max_workers=args.workers,
            mp_context=mp.get_context("fork"),
            initializer=init_worker,
            initargs=(log_queue, args.worker_log_level, str(out_dir), args.limit),
        ) as pool:
            futures = {pool.submit(decode, str(p), args.window, args.hop): p for p in paths}
            self.log.info("submitted %d captures to %d workers", len(futures), args.workers)
            for future in cf.as_completed(futures):
                report = future.result()
                self.reports.append(report)
                if len(self.reports) % 10 == 0:
                    self.log.info("%d of %d captures done", len(self.reports), len(futures))

    def summary(self) -> str:
        frames = sum(r.frames for r in self.reports)
        busy = sum(r.seconds for r in self.reports)
        return f"{len(self.reports)} captures, {frames} frames, {busy:.1f} worker seconds"


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--captures", type=int, default=240)
    p.add_argument("--channels", type=int, default=4)
    p.add_argument("--samples", type=int, default=48_000)
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--hop", type=int, default=64)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--log-level", default="INFO")
    p.add_argument("--worker-log-level", default="DEBUG")
    p.add_argument("--limit", type=float, default=125.0, help="wall time in seconds")
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    walltime.arm(args.limit)
    log = parent_logger(args.log_level)
    log_queue = mp.get_context("fork").Queue()
    with tempfile.TemporaryDirectory(prefix="ingest_") as tmp:
        root = Path(tmp)
        out_dir = root / "features"
        out_dir.mkdir()
        paths = write_captures(root, args.captures, args.channels, args.samples, args.seed)
        log.info("%d captures under %s", len(paths), root)
        listener = start_listener(log_queue)
        ingest = Ingest(args, log)
        ingest.run(paths, out_dir, log_queue)
        listener.stop()
        log.info(ingest.summary())


if __name__ == "__main__":
    main()
