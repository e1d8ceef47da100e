"""One validation pass over the stream."""
import logging
import time

import torch

from metrics import MultilabelAUROC

log = logging.getLogger("validate")


class Validator:
    def __init__(self, model, stream, args):
        self.model = model
        self.stream = stream
        self.args = args
        self.auroc = MultilabelAUROC(args.tasks)

    def run(self):
        self.model.eval()
        self.auroc.reset()
        total = 0.0
        for n in range(1, self.args.val_batches + 1):
            x, y = self.stream.batch()
            logits = self.model(x)
            total += torch.nn.functional.binary_cross_entropy_with_logits(logits, y.float()).item()
            self.auroc.update(logits, y)
            if n % 100 == 0:
                log.info("validation %d / %d, loss %.4f", n, self.args.val_batches, total / n)
            time.sleep(0.1)
        log.info("validation done, AUROC %.4f", self.auroc.compute())
