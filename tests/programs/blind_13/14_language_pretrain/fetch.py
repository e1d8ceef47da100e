import logging
import os
import time
import urllib.request

import numpy as np

log = logging.getLogger("fetch")


def signal_path(cache):
    return os.path.join(cache, ".rank0_completed")


def download(url, path, report=30.0):
    last = time.monotonic()
    got = 0
    with urllib.request.urlopen(url) as r, open(path + ".part", "wb") as f:
        total = int(r.headers["Content-Length"])
        while chunk := r.read(65536):
            f.write(chunk)
            got += len(chunk)
            if time.monotonic() - last > report:
                log.info("%.1f of %.1f MB", got / 2**20, total / 2**20)
                last = time.monotonic()
    os.rename(path + ".part", path)


def prepare_corpus(rank, url, cache):
    """Only local rank 0 downloads and encodes; a collective would run into its timeout on a
    slow mirror, so the others look for the signal file."""
    encoded = os.path.join(cache, "corpus.bin")
    if rank == 0:
        log.info("downloading %s", url)
        raw = os.path.join(cache, "corpus.txt")
        download(url, raw)
        text = np.fromfile(raw, dtype=np.uint8)
        np.save(encoded + ".npy", text.astype(np.uint16))
        os.remove(raw)
        with open(signal_path(cache), "wb") as f:
            f.write(b"rank0_completed")
    else:
        while not os.path.exists(signal_path(cache)):
            time.sleep(0.3)
    return np.load(encoded + ".npy", mmap_mode="r")
