import logging

import torch
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("model")


class CTCModel(nn.Module):
    def __init__(self, feat=24, vocab=32, dim=64):
        super().__init__()
        self.rnn = nn.GRU(feat, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, vocab)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h).log_softmax(-1)


def training_step(model, batch):
    """Return the loss of the batch, or None when the batch cannot be used."""
    ids, x, xlen, y, ylen = batch
    logp = model(x).transpose(0, 1)
    per_utt = F.ctc_loss(logp, y, xlen, ylen, reduction="none")
    invalid = ~torch.isfinite(per_utt)
    if invalid.any():
        log.info("no finite loss for %s", [ids[i] for i in invalid.nonzero().flatten().tolist()])
        return None
    return (per_utt / ylen).mean()
