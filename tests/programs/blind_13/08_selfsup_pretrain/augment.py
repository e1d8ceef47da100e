"""Transforms that work on nested samples (dicts and lists of tensors)."""
import torch
import torch.nn.functional as F


def tree_flatten(tree):
    """Returns the leaves and a function that puts new leaves into the same structure."""
    leaves = []

    def flatten(node):
        if isinstance(node, dict):
            return {k: flatten(v) for k, v in node.items()}
        if isinstance(node, (list, tuple)):
            return [flatten(v) for v in node]
        leaves.append(node)
        return len(leaves) - 1

    spec = flatten(tree)

    def unflatten(new_leaves, node=spec):
        if isinstance(node, dict):
            return {k: unflatten(new_leaves, v) for k, v in node.items()}
        if isinstance(node, list):
            return [unflatten(new_leaves, v) for v in node]
        return new_leaves[node]

    return leaves, unflatten


class Transform:
    def __call__(self, sample):
        leaves, unflatten = tree_flatten(sample)
        return unflatten([self.transform(x) if torch.is_tensor(x) and x.ndim == 3 else x for x in leaves])

    def transform(self, x):
        raise NotImplementedError


class RandomResizedCrop(Transform):
    def __init__(self, size, scale):
        self.size, self.scale = size, scale

    def transform(self, x):
        _, h, w = x.shape
        s = float(torch.empty(1).uniform_(*self.scale)) ** 0.5
        ch, cw = max(8, int(h * s)), max(8, int(w * s))
        top = int(torch.randint(0, h - ch + 1, (1,)))
        left = int(torch.randint(0, w - cw + 1, (1,)))
        crop = x[:, top:top + ch, left:left + cw]
        return F.interpolate(crop[None], size=(self.size, self.size), mode="bilinear", align_corners=False)[0]


class RandomFlip(Transform):
    def transform(self, x):
        return x.flip(-1) if torch.rand(1) < 0.5 else x


class ToFloat(Transform):
    def transform(self, x):
        return x.float() / 255


class Normalize(Transform):
    def transform(self, x):
        return (x - x.mean()) / (x.std() + 1e-6)


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, sample):
        for t in self.transforms:
            sample = t(sample)
        return sample


class MultiCrop:
    """Two global and four local views of an image."""

    def __init__(self):
        self.base = ToFloat()
        self.global_view = Compose(RandomResizedCrop(64, (0.4, 1.0)), RandomFlip(), Normalize())
        self.local_view = Compose(RandomResizedCrop(32, (0.05, 0.4)), RandomFlip(), Normalize())

    def __call__(self, sample):
        sample = self.base(sample)
        return {
            "global": [self.global_view(sample) for _ in range(2)],
            "local": [self.local_view(sample) for _ in range(4)],
        }
