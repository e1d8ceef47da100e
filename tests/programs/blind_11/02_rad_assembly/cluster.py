"""Within-sample clustering of reads (step 3 of the assembly)."""
import logging
import os
import time

import numpy as np

log = logging.getLogger("assembly.cluster")


def encode_reads(n_reads, length, seed):
    rng = np.random.default_rng(seed)
    loci = rng.integers(0, 4, size=(max(8, n_reads // 20), length), dtype=np.int8)
    reads = loci[rng.integers(0, len(loci), size=n_reads)].copy()
    errors = rng.random(reads.shape) < 0.02
    reads[errors] = rng.integers(0, 4, size=int(errors.sum()), dtype=np.int8)
    return reads


def greedy_pass(reads, threshold):
    seeds = np.empty((0, reads.shape[1]), dtype=np.int8)
    assignment = np.empty(len(reads), dtype=np.int64)
    for i, read in enumerate(reads):
        if len(seeds):
            identity = (seeds == read).mean(axis=1)
            best = int(identity.argmax())
            if identity[best] >= threshold:
                assignment[i] = best
                continue
        seeds = np.vstack([seeds, read])
        assignment[i] = len(seeds) - 1
    return assignment, len(seeds)


def cluster_sample(name, n_reads, threshold, seconds_per_kread, seed):
    """Greedy clustering, repeated over shuffled read orders within the effort allotted to the sample."""
    reads = encode_reads(n_reads, 90, seed)
    rng = np.random.default_rng(seed + 1)
    effort = seconds_per_kread * n_reads / 1000.0
    started = time.monotonic()
    best = None
    passes = 0
    while best is None or time.monotonic() - started < effort:
        order = rng.permutation(len(reads))[:400]
        _, n_clusters = greedy_pass(reads[order], threshold)
        best = n_clusters if best is None else min(best, n_clusters)
        passes += 1
    return {"sample": name, "pid": os.getpid(), "clusters": best, "passes": passes,
            "seconds": time.monotonic() - started}
