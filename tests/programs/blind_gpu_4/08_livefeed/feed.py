"""Live feed: windows of grid measurements, delivered at the rate of the acquisition."""
import logging
import time

import torch

log = logging.getLogger("feed")


def feed_process(args, out):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [feed] %(message)s")
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(args.seed)
    phase = torch.rand(args.channels, generator=gen) * 6.28
    number, due = 0, time.monotonic()
    while True:
        base = torch.arange(args.window + 1, dtype=torch.float32) * 0.05 + number * 0.01
        signal = torch.sin(base.view(1, -1, 1) + phase.view(1, 1, -1))
        noise = 0.1 * torch.randn(args.batch_size, args.window + 1, args.channels, generator=gen)
        out.put((number, (signal + noise).numpy()))
        number += 1
        due += 1.0 / args.windows_per_second
        time.sleep(max(0.0, due - time.monotonic()))
