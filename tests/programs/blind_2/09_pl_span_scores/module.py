import pytorch_lightning as pl
import torch
from torch import nn


class SpanScorer(pl.LightningModule):
    def __init__(self, dim=32, hidden=64, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, 1))
        self.val_scores = []

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.val_scores.append(torch.stack([self(x), y]))

    def on_validation_epoch_end(self):
        local = torch.cat(self.val_scores, dim=1)
        self.val_scores.clear()
        if self.trainer.is_global_zero:
            scores = self.all_gather(local).flatten(0, 1)
            pos, neg = scores[0][scores[1] > 0.5], scores[0][scores[1] < 0.5]
            auc = (pos[:, None] > neg[None, :]).float().mean()
            self.print(f"epoch {self.current_epoch}: auc {auc:.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
