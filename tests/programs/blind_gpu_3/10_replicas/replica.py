"""One model replica: takes a job from its own inbox, answers on the shared outbox."""
import logging
import os
import threading

import torch
import torch.nn as nn

log = logging.getLogger("replica")


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


class Encoder(nn.Module):
    def __init__(self, in_dim, hidden, layers):
        super().__init__()
        mods, width = [], in_dim
        for _ in range(layers):
            mods += [nn.Linear(width, hidden), nn.GELU()]
            width = hidden
        self.net = nn.Sequential(*mods, nn.Linear(width, 256))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def replica_main(index, args, inbox, outbox):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Encoder(args.in_dim, args.hidden, args.layers).to(device).eval()
    with torch.inference_mode():
        model(torch.zeros(1, args.in_dim, device=device)).cpu()
    outbox.put(("up", index, None))
    served = 0
    while True:
        job = inbox.get()
        if job is None:
            break
        job_id, frames = job
        with torch.inference_mode():
            emb = model(torch.from_numpy(frames).to(device)).mean(0).cpu().numpy()
        served += 1
        outbox.put(("done", index, (job_id, emb)))
    log.info("replica %d served %d jobs", index, served)
