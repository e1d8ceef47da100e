import time

import numpy as np
import torch


class Upscaler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 3, padding=1)

    @torch.no_grad()
    def forward(self, x):
        return torch.nn.functional.interpolate(self.conv(x), scale_factor=3)


_model = None


def init_worker():
    global _model
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _model = Upscaler()


def fetch_frame(index, latency=0.1):
    time.sleep(latency)
    return np.random.default_rng(index).random((1, 1, 128, 128), dtype=np.float32)


def render_frame(index):
    small = torch.from_numpy(fetch_frame(index))
    return index, _model(small)[0, 0].numpy()
