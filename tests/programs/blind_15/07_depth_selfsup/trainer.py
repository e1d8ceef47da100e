import logging
import time

import torch

log = logging.getLogger("trainer")


class BasicTrainer:
    def __init__(self, max_epochs, log_every=25):
        self.max_epochs = max_epochs
        self.log_every = log_every

    def fit(self, module, optimizer, loader):
        for epoch in range(self.max_epochs):
            self.train(loader, module, optimizer, epoch)

    def train(self, loader, module, optimizer, epoch):
        module.train()
        outputs = []
        t0 = time.time()
        for i, batch in enumerate(loader):
            output = module.training_step(batch)
            optimizer.zero_grad()
            output["loss"].backward()
            optimizer.step()
            outputs.append(output)
            time.sleep(0.12)
            if (i + 1) % self.log_every == 0:
                avg = torch.stack([o["loss"].detach() for o in outputs[-self.log_every:]]).mean()
                log.info("epoch %d [%d/%d] loss %.4f (%.1f it/s)", epoch, i + 1, len(loader), avg,
                         (i + 1) / (time.time() - t0))
        return module.training_epoch_end(outputs)
