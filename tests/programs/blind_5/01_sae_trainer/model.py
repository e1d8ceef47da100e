import torch
from torch import nn


class SparseCoder(nn.Module):
    def __init__(self, d_in: int, n_latents: int, k: int):
        super().__init__()
        self.encoder = nn.Linear(d_in, n_latents)
        self.decoder = nn.Linear(n_latents, d_in, bias=False)
        self.k = k

    def forward(self, x):
        acts = torch.relu(self.encoder(x))
        top, idx = acts.topk(self.k, dim=-1)
        sparse = torch.zeros_like(acts).scatter(-1, idx, top)
        return self.decoder(sparse), sparse
