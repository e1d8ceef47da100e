"""A small trainer in the manner of the big ones: callbacks, DDP, one optimizer."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("trainer")


class Callback:
    def setup(self, trainer, module):
        pass

    def on_train_epoch_start(self, trainer, module, optimizer):
        pass

    def on_validation_end(self, trainer, module, metrics):
        pass


class BackboneFinetuning(Callback):
    def __init__(self, unfreeze_at_epoch=2, lr_ratio=0.1):
        self.unfreeze_at_epoch, self.lr_ratio = unfreeze_at_epoch, lr_ratio

    def setup(self, trainer, module):
        for p in module.backbone.parameters():
            p.requires_grad = False

    def on_train_epoch_start(self, trainer, module, optimizer):
        if trainer.current_epoch != self.unfreeze_at_epoch:
            return
        for p in module.backbone.parameters():
            p.requires_grad = True
        lr = optimizer.param_groups[0]["lr"] * self.lr_ratio
        optimizer.add_param_group({"params": list(module.backbone.parameters()), "lr": lr})
        log.info("epoch %d: backbone unfrozen, lr %.2g", trainer.current_epoch, lr)


class BestCheckpoint(Callback):
    def __init__(self, directory, monitor="val_loss"):
        self.directory, self.monitor, self.best = directory, monitor, float("inf")

    def on_validation_end(self, trainer, module, metrics):
        if trainer.rank == 0 and metrics[self.monitor] < self.best:
            self.best = metrics[self.monitor]
            torch.save(module.state_dict(), os.path.join(self.directory, "best.pt"))


class Trainer:
    def __init__(self, rank, world_size, max_epochs, callbacks, batch_size=32, max_time=125):
        self.rank, self.world_size, self.max_epochs = rank, world_size, max_epochs
        self.callbacks, self.batch_size, self.max_time = callbacks, batch_size, max_time
        self.current_epoch = 0
        self.global_step = 0

    def _loader(self, dataset, shuffle):
        sampler = DistributedSampler(dataset, self.world_size, self.rank, shuffle=shuffle)
        return DataLoader(dataset, batch_size=self.batch_size, sampler=sampler), sampler

    def _out_of_time(self, started):
        flag = torch.tensor([time.time() - started > self.max_time], dtype=torch.int32)
        dist.broadcast(flag, src=0)
        return bool(flag)

    def fit(self, module, train_set, val_set):
        for cb in self.callbacks:
            cb.setup(self, module)
        optimizer = module.configure_optimizers()
        model = DistributedDataParallel(module)
        train_loader, sampler = self._loader(train_set, True)
        val_loader, _ = self._loader(val_set, False)
        started = time.time()
        for self.current_epoch in range(self.max_epochs):
            for cb in self.callbacks:
                cb.on_train_epoch_start(self, module, optimizer)
            sampler.set_epoch(self.current_epoch)
            model.train()
            running = 0.0
            for images, labels in train_loader:
                loss = module.loss(model(images), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                self.global_step += 1
                running += loss.item()
            metrics = self.validate(model, module, val_loader)
            metrics["train_loss"] = running / len(train_loader)
            for cb in self.callbacks:
                cb.on_validation_end(self, module, metrics)
            norm = sum(p.detach().pow(2).sum() for p in module.parameters()).sqrt().item()
            log.info("epoch %d step %d train_loss %.4f val_loss %.4f val_acc %.3f |w| %.5f", self.current_epoch,
                     self.global_step, metrics["train_loss"], metrics["val_loss"], metrics["val_acc"], norm)
            if self._out_of_time(started):
                break

    @torch.no_grad()
    def validate(self, model, module, loader):
        model.eval()
        losses, correct, seen = [], 0, 0
        for images, labels in loader:
            logits = model(images)
            losses.append(module.loss(logits, labels).item())
            correct += int((logits.argmax(1) == labels).sum())
            seen += len(labels)
        return {"val_loss": sum(losses) / len(losses), "val_acc": correct / seen}
