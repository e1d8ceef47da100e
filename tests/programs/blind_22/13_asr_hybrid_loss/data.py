"""Synthetic utterances: each token emits a few noisy frames of its prototype."""
import torch
from torch.utils.data import Dataset


class SyntheticSpeech(Dataset):
    def __init__(self, size, seed, vocab=30, feat_dim=40, tokens_per_utt=10, frames_per_token=6):
        self.prototypes = torch.randn(vocab, feat_dim, generator=torch.Generator().manual_seed(99))
        gen = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, vocab, (size, tokens_per_utt), generator=gen)
        self.frames_per_token = frames_per_token
        self.seed = seed

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        clean = self.prototypes[tokens].repeat_interleave(self.frames_per_token, dim=0)
        gen = torch.Generator().manual_seed(self.seed * 100003 + index)
        return clean + 0.5 * torch.randn(clean.shape, generator=gen), tokens
