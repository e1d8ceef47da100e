import torch
from torch import nn
import torch.nn.functional as F


class SpeakerEncoder(nn.Module):
    def __init__(self, dim=40, proj=32, width=64, layers=1):
        super().__init__()
        self.lstm = nn.LSTM(dim, width, layers, batch_first=True)
        self.proj = nn.Linear(width, proj)

    def forward(self, x):
        _, (h, _) = self.lstm(x)
        return F.normalize(self.proj(h[-1]), dim=-1)


class GE2ELoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(10.0))
        self.b = nn.Parameter(torch.tensor(-5.0))

    def forward(self, dvecs):
        speakers, utterances, _ = dvecs.shape
        centroids = F.normalize(dvecs.mean(1), dim=-1)
        logits = self.w * torch.einsum("sud,cd->suc", dvecs, centroids) + self.b
        target = torch.arange(speakers).repeat_interleave(utterances)
        return F.cross_entropy(logits.flatten(0, 1), target)
