"""Synthetic multi-view scenes and the image-budget batch sampler."""
import random

import torch
from torch.utils.data import Dataset, Sampler


class SceneDataset(Dataset):
    """Each scene offers up to 24 views; how many are used is chosen by the sampler."""

    def __init__(self, num_scenes, image_size):
        self.num_scenes = num_scenes
        self.image_size = image_size

    def __len__(self):
        return self.num_scenes

    def __getitem__(self, key):
        scene, num_views = key
        gen = torch.Generator().manual_seed(scene)
        images = torch.randn(num_views, 3, self.image_size, self.image_size, generator=gen)
        depth = images.mean(dim=(1, 2, 3)) + 0.1 * torch.randn(num_views, generator=gen)
        return images, depth


class ImageBudgetBatchSampler(Sampler):
    """Packs scenes with a random number of views until max_img_per_gpu is reached."""

    def __init__(self, num_scenes, rank, world_size, max_img_per_gpu, image_num_range, seed=42):
        self.num_scenes = num_scenes
        self.rank = rank
        self.world_size = world_size
        self.max_img_per_gpu = max_img_per_gpu
        self.image_num_range = image_num_range
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(self.num_scenes))
        random.Random(self.seed + self.epoch).shuffle(order)
        mine = order[self.rank::self.world_size]
        rng = random.Random(self.seed + 1000 * self.rank + self.epoch)
        batch, used = [], 0
        for scene in mine:
            views = rng.randint(*self.image_num_range)
            if used + views > self.max_img_per_gpu and batch:
                yield batch
                batch, used = [], 0
            batch.append((scene, views))
            used += views
        if batch:
            yield batch


def collate_views(samples):
    images = torch.cat([s[0] for s in samples])
    depth = torch.cat([s[1] for s in samples])
    scene_ids = torch.cat([torch.full((len(s[1]),), i) for i, s in enumerate(samples)])
    return images, depth, scene_ids
