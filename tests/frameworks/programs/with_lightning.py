"""A training of Lightning on two processes of the cpu."""

import sys
import time

import pytorch_lightning
import torch


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(10, 1)

    def training_step(self, batch):
        time.sleep(0.1)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    pytorch_lightning.seed_everything(0)
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=sys.argv[1],
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(200, 10), batch_size=2))
    print("result", trainer.global_rank, trainer.global_step, flush=True)
