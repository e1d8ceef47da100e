import numpy as np
import torch
from torch import nn

_scorer = None


class PatchScorer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2), nn.ReLU(), nn.Conv2d(width, width, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(width * 16, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def cut_patches(image, size=64, stride=32):
    rows = range(0, image.shape[0] - size + 1, stride)
    cols = range(0, image.shape[1] - size + 1, stride)
    return np.stack([image[r : r + size, c : c + size] for r in rows for c in cols])


def read_slide(seed, side=512):
    rng = np.random.default_rng(seed)
    return rng.random((side, side, 3), dtype=np.float32)


def init_scorer(state, device):
    global _scorer
    torch.set_num_threads(1)
    _scorer = PatchScorer()
    _scorer.load_state_dict(state)
    _scorer.to(device).eval()
    _scorer.device = device


@torch.no_grad()
def score_slide(slide_id):
    patches = torch.from_numpy(cut_patches(read_slide(slide_id))).permute(0, 3, 1, 2)
    scores = _scorer(patches.to(_scorer.device))
    top = scores.topk(5)
    return slide_id, top.indices.tolist(), top.values.tolist()
