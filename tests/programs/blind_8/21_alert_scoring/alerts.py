import numpy as np
import torch


def make_batch(burst, index):
    return np.random.default_rng(burst * 1000 + index).standard_normal((128, 200)).astype(np.float32)


class AlertScorer:
    net = None

    @classmethod
    def install(cls):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        cls.net = torch.nn.Sequential(torch.nn.Linear(200, 800), torch.nn.ReLU(), torch.nn.Linear(800, 1))

    @classmethod
    @torch.no_grad()
    def score(cls, batch):
        x = torch.from_numpy(batch)
        for _ in range(25):
            y = cls.net(x)
        return y.max().item()
