import logging
import random
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset, Sampler

log = logging.getLogger("data")


class VideoDataset(Dataset):
    """Compressed clips with prompts; decoding resizes a clip to the nearest bucket."""

    def __init__(self, num_clips, height_buckets, width_buckets, frame_buckets, seed=3):
        self.resolutions = [(f, h, w) for f in frame_buckets for h in height_buckets for w in width_buckets]
        rng = random.Random(seed)
        self.items = []
        base = np.random.default_rng(seed).integers(0, 255, (12, 96, 128, 3), dtype=np.uint8)
        base = (base // 32) * 32
        self.storage = [zlib.compress(np.roll(base, shift, axis=1).tobytes(), 6) for shift in range(12)]
        for i in range(num_clips):
            self.items.append({
                "prompt": f"a clip of {rng.choice(['a dog', 'the sea', 'a street', 'a dancer'])} at {i}",
                "blob": i % len(self.storage),
                "resolution": rng.choice(self.resolutions),
            })

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        if isinstance(index, list):
            return index
        item = self.items[index]
        frames, height, width = item["resolution"]
        raw = np.frombuffer(zlib.decompress(self.storage[item["blob"]]), dtype=np.uint8)
        video = torch.from_numpy(raw.reshape(12, 96, 128, 3).copy()).permute(3, 0, 1, 2).float() / 127.5 - 1.0
        video = F.interpolate(video[None], size=(frames, height * 4, width * 4), mode="trilinear",
                              align_corners=False)
        video = F.avg_pool3d(video, (1, 4, 4))[0]
        return {"prompt": item["prompt"], "video": video, "num_frames": frames, "height": height, "width": width}


class BucketSampler(Sampler):
    """Groups the clips of a data source by their shape so that a batch can be stacked."""

    def __init__(self, data_source, batch_size=8, shuffle=True, drop_last=False):
        self.data_source = data_source
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.buckets = {resolution: [] for resolution in data_source.resolutions}

    def __len__(self):
        return (len(self.data_source) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        for index, data in enumerate(self.data_source):
            video = data["video"]
            shape = (video.shape[1], video.shape[2], video.shape[3])
            self.buckets[shape].append(data)
            if len(self.buckets[shape]) == self.batch_size:
                if self.shuffle:
                    random.shuffle(self.buckets[shape])
                yield self.buckets[shape]
                self.buckets[shape] = []
        if self.drop_last:
            return
        for shape, bucket in self.buckets.items():
            if bucket:
                yield bucket
                self.buckets[shape] = []


def collate(batch):
    samples = batch[0]
    return {
        "prompts": [s["prompt"] for s in samples],
        "videos": torch.stack([s["video"] for s in samples]),
    }
