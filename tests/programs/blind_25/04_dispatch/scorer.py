import logging

import torch
from torch import nn

PAD = 0
_model = None


class RewardModel(nn.Module):
    def __init__(self, vocab=512, dim=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.mix = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.out = nn.Linear(dim, 1)

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(3):
            x = x + self.mix(x)
        return self.out(x).squeeze(-1)


def init_worker(seed):
    global _model
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    _model = RewardModel().eval()
    logging.getLogger("scorer").info("reward model ready")


@torch.no_grad()
def score(sample):
    tokens = torch.tensor([sample["prompt"] + sample["response"]])
    mask = tokens.ne(PAD).float()
    mask[:, : len(sample["prompt"])] = 0
    if mask.sum() == 0:
        raise ValueError(f"sample {sample['id']}: response has no scorable tokens")
    values = _model(tokens)
    return {"reward": float((values * mask).sum() / mask.sum()),
            "tokens": int(mask.sum())}
