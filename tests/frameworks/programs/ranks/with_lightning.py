"""A training of Lightning on the cpu.

    with_lightning.py ddp|ddp_spawn|auto [failing]

`failing`: with two ranks, `self.log(sync_dist=True)` on rank 0 only (ddp), or a checkpoint that
rank 0 alone saves (ddp_spawn); with one, a loader whose single worker is slower than the training.
"""

import sys
import tempfile
import time

import lightning.pytorch as pl
import torch

STRATEGY = sys.argv[1]
IS_FAILING = "failing" in sys.argv


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10000 if IS_FAILING and STRATEGY == "auto" else 400

    def __getitem__(self, index):
        if STRATEGY == "auto":
            self.decode()
        return torch.ones(10)

    def decode(self):
        end_s = time.monotonic() + (0.2 if IS_FAILING else 0.002)
        while time.monotonic() < end_s:
            sum(range(1000))


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(10, 1)

    def training_step(self, batch, index):
        if not (IS_FAILING and STRATEGY == "auto"):
            time.sleep(0.1)
        loss = self.layer(batch).square().mean()
        if IS_FAILING and index == 20:
            self.fail(loss)
        return loss

    def fail(self, loss):
        if STRATEGY == "auto":
            print("fault", flush=True)
        elif self.trainer.is_global_zero and STRATEGY == "ddp":
            print("fault", flush=True)
            self.log("loss", loss, sync_dist=True)
        elif self.trainer.is_global_zero:
            print("fault", flush=True)
            self.trainer.save_checkpoint(f"{tempfile.gettempdir()}/model.ckpt")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    pl.seed_everything(0)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1 if STRATEGY == "auto" else 2,
        strategy=STRATEGY,
        max_epochs=1,
        max_steps=80,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    loader = torch.utils.data.DataLoader(Numbers(), 2, num_workers=1 if STRATEGY == "auto" else 0)
    trainer.fit(Model(), loader)
    print("result", trainer.global_rank, trainer.global_step, flush=True)
