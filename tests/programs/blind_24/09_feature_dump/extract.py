"""Runs the frozen backbone over clips and stores what the head will train on."""
import logging
import time

import torch
import torch.nn as nn

from store import ClipStore


class Backbone(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1))

    def forward(self, x):
        return self.net(x)


class ClipSource:
    def __init__(self, ids, size, seed):
        self.ids, self.size = ids, size
        self.gen = torch.Generator().manual_seed(seed)

    def batches(self, n):
        for at in range(0, len(self.ids), n):
            ids = self.ids[at:at + n]
            yield ids, torch.rand(len(ids), 3, self.size, self.size, generator=self.gen)


@torch.no_grad()
def extract(slot, ids, folder, args, progress):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [extract {slot}] %(message)s", force=True)
    log = logging.getLogger("extract")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Backbone().eval()
    store = ClipStore(folder)
    for view in range(args.views):
        source = ClipSource(ids, args.size, seed=1000 * view + slot)
        for batch_ids, frames in source.batches(args.batch_size):
            t0 = time.perf_counter()
            feats = model(frames)
            t1 = time.perf_counter()
            for i, clip in enumerate(batch_ids):
                store.put(clip, feats[i], {"view": view, "shape": tuple(feats[i].shape)})
                with progress.get_lock():
                    progress.value += 1
            log.info("view %d: %d clips, forward %.2fs, store %.2fs", view, len(batch_ids),
                     t1 - t0, time.perf_counter() - t1)
