import torch
from torch import nn


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


class Extractor:
    def __init__(self, mean, std, dim=32):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, dim))
        self.transform = Compose([lambda x: (x - mean) / std, torch.tanh])

    def run(self, seeds):
        torch.set_num_threads(1)
        x = torch.stack([load_patch(s) for s in seeds])
        with torch.no_grad():
            return self.net(self.transform(x)).numpy()


def load_patch(seed):
    return torch.randn(3, 24, 24, generator=torch.Generator().manual_seed(int(seed)))


def patch_statistics(seeds):
    torch.set_num_threads(1)
    x = torch.stack([load_patch(s) for s in seeds])
    return float(x.mean()), float(x.std())
