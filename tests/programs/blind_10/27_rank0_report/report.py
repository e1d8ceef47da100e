import logging
import time

import torch
from torch import nn

log = logging.getLogger("report")


class Report:
    """Beam search over the whole held-out set; needs one model only, so the first rank does it."""

    def __init__(self, sentences, width=4):
        gen = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(sentences, 24, generator=gen)
        self.width = width

    @torch.no_grad()
    def run(self, model):
        total = 0.0
        for number, x in enumerate(self.inputs):
            beams = x.expand(self.width, -1)
            for _ in range(5):
                logits = model(beams)
                total += logits.log_softmax(-1).amax().item()
                beams = beams.roll(1, -1) + 0.01 * logits[:, :1]
                time.sleep(0.01)
            if number % 150 == 149:
                log.info("report: %d of %d sentences", number + 1, len(self.inputs))
        return total / len(self.inputs)
