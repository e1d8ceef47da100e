"""Build a similarity index over a compound library.

Fingerprints are computed by a pool of processes; the index is written block by block in the order of
the library.
"""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time
from pathlib import Path

import torch

from chem import CompoundLibrary, morgan_like_fingerprint
from status import StatusReporter

log = logging.getLogger("fpindex")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--compounds", type=int, default=60000)
    p.add_argument("--bits", type=int, default=1024)
    p.add_argument("--radius", type=int, default=3)
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--chunk", type=int, default=32)
    p.add_argument("--block", type=int, default=2048, help="rows in one block of the index")
    p.add_argument("--query-top", type=int, default=5)
    p.add_argument("--walltime", type=float, default=135.0, help="seconds granted by the batch system")
    return p.parse_args()


class IndexWriter:
    """Collects rows and writes them as blocks of packed bits."""

    def __init__(self, folder, bits, block):
        self.folder = Path(folder)
        self.bits = bits
        self.block = block
        self.rows = []
        self.files = []
        self.count = 0

    def add(self, fingerprint):
        self.rows.append(fingerprint)
        self.count += 1
        if len(self.rows) == self.block:
            self.flush()

    def flush(self):
        if not self.rows:
            return
        dense = torch.zeros(len(self.rows), self.bits, dtype=torch.uint8)
        for i, on_bits in enumerate(self.rows):
            dense[i, on_bits] = 1
        path = self.folder / f"block_{len(self.files):05d}.pt"
        torch.save(dense, path)
        self.files.append(path)
        self.rows = []

    def search(self, query, top):
        """Tanimoto similarity of one fingerprint to every row of the index."""
        q = torch.zeros(self.bits)
        q[query] = 1
        best = []
        for n, path in enumerate(self.files):
            block = torch.load(path).float()
            common = block @ q
            score = common / (block.sum(1) + q.sum() - common)
            values, rows = score.topk(min(top, len(block)))
            best += [(v.item(), n * self.block + r.item()) for v, r in zip(values, rows)]
        return sorted(best, reverse=True)[:top]


def fingerprint_job(job):
    smiles, radius, bits = job
    return morgan_like_fingerprint(smiles, radius, bits)


def compute_fingerprints(library, args):
    jobs = ((smiles, args.radius, args.bits) for smiles in library)
    with mp.Pool(args.processes) as pool:
        log.info("%d processes for %d compounds, %d per chunk", args.processes, len(library), args.chunk)
        fingerprints = pool.imap(fingerprint_job, jobs, chunksize=args.chunk)
    return fingerprints


def build(library, writer, status, args):
    started = time.monotonic()
    for fingerprint in compute_fingerprints(library, args):
        writer.add(fingerprint)
        status.count.value = writer.count
    writer.flush()
    log.info("index of %d rows built in %.1f s", writer.count, time.monotonic() - started)


def walltime(seconds):
    time.sleep(seconds)
    log.error("walltime of %.0f s exceeded", seconds)
    os._exit(1)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(levelname)s %(message)s")
    threading.Thread(target=walltime, args=(args.walltime,), daemon=True).start()

    library = CompoundLibrary(args.compounds, seed=11)
    with tempfile.TemporaryDirectory(prefix="fpindex_") as folder:
        writer = IndexWriter(folder, args.bits, args.block)
        status = StatusReporter(len(library), Path(folder, "status.json"))
        status.start()
        build(library, writer, status, args)
        status.finish()
        query = morgan_like_fingerprint(library[0], args.radius, args.bits)
        for score, row in writer.search(query, args.query_top):
            log.info("hit %.3f %s", score, library[row])


if __name__ == "__main__":
    main()
