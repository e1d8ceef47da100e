import logging
import os
import time

import numpy as np
import torch

log = logging.getLogger("scanner")


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def band_powers(chunk, bands, nfft=4096):
    frames = torch.from_numpy(chunk[: len(chunk) // nfft * nfft]).view(-1, nfft)
    power = torch.fft.rfft(frames * torch.hann_window(nfft)).abs().square().mean(0)[1:]
    return power.view(bands, -1).mean(1)


def run_scanner(path, start, count, args, results):
    torch.set_num_threads(1)
    data = np.memmap(path, dtype=np.float32, mode="r")
    total = torch.zeros(args.bands)
    chunks = 0
    due = last_log = time.monotonic()
    for offset in range(start, start + count - args.chunk + 1, args.chunk):
        chunk = np.array(data[offset:offset + args.chunk])
        total += band_powers(chunk, args.bands)
        chunks += 1
        due = max(due + 1.0 / args.chunks_per_second, time.monotonic() - 1.0)
        time.sleep(max(0.0, due - time.monotonic()))
        if time.monotonic() - last_log > 15:
            log.info("%.0f%% scanned, rss %.0f MB", 100 * (offset - start) / count, resident_mb())
            last_log = time.monotonic()
    results.put({"start": start, "chunks": chunks, "bands": [round(v, 3) for v in (total / max(chunks, 1)).tolist()]})
