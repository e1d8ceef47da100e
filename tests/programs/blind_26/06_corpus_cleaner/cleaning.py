"""Rules for web text and a small quality model."""
import re
import zlib

import torch
from torch import nn

BLANKS = re.compile(r"[ \t\u00a0]+$", re.MULTILINE)
BREAKS = re.compile(r"\n{3,}")
BULLETS = re.compile(r"^[\u2022\u25cf*]\s*", re.MULTILINE)
URL = re.compile(r"https?://[^\s)>\]]+")
WORD = re.compile(r"\w+")


def normalize(text):
    text = URL.sub("<url>", text)
    text = BULLETS.sub("- ", text)
    text = BLANKS.sub("", text)
    return BREAKS.sub("\n\n", text).strip()


class QualityModel(nn.Module):
    """Bag of hashed words."""

    def __init__(self, buckets=4096, width=32):
        super().__init__()
        torch.manual_seed(12)
        self.buckets = buckets
        self.words = nn.EmbeddingBag(buckets, width)
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))

    @torch.inference_mode()
    def score(self, text):
        ids = [zlib.crc32(w.lower().encode()) % self.buckets for w in WORD.findall(text)] or [0]
        return torch.sigmoid(self.head(self.words(torch.tensor([ids])))).item()
