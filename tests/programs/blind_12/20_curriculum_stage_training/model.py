"""Text model with an optional time-series branch."""
import torch
import torch.nn as nn


class SeriesEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv1d(1, dim, 9, stride=4, padding=4)
        self.proj = nn.Linear(dim, dim)

    def forward(self, series):
        h = torch.relu(self.conv(series.unsqueeze(1))).mean(dim=2)
        return self.proj(h)


class SeriesTextModel(nn.Module):
    def __init__(self, vocab=500, dim=96, classes=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mixer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True, dropout=0.0)
        self.head = nn.Linear(dim, classes)
        self.series_encoder = SeriesEncoder(dim)

    def compute_loss(self, batch):
        h = self.mixer(self.embed(batch["tokens"])).mean(dim=1)
        if batch["has_series"].any():
            idx = batch["has_series"].nonzero(as_tuple=True)[0]
            h = h.index_add(0, idx, self.series_encoder(batch["series"][idx]))
        return nn.functional.cross_entropy(self.head(h), batch["label"])
