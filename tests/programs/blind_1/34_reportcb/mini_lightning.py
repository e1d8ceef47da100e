"""The few parts of the trainer that we use."""
import os
import time

import torch
import torch.distributed as dist


class Strategy:
    @property
    def is_global_zero(self):
        return dist.get_rank() == 0

    def barrier(self, name=None):
        dist.barrier()

    def reduce_gradients(self, module):
        for p in module.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


class Trainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks, self.strategy = max_epochs, callbacks, Strategy()
        self.callback_metrics, self.current_epoch = {}, 0

    def save_checkpoint(self, path):
        """Collects the states of the strategy, hence a synchronisation point."""
        state = {"module": self.module.state_dict(), "epoch": self.current_epoch}
        if self.strategy.is_global_zero:
            torch.save(state, path)
        self.strategy.barrier("Trainer.save_checkpoint")

    def fit(self, module, batches):
        self.module = module
        opt = module.configure_optimizers()
        for self.current_epoch in range(self.max_epochs):
            for i in range(batches):
                loss = module.training_step(i)
                opt.zero_grad()
                loss.backward()
                self.strategy.reduce_gradients(module)
                opt.step()
                time.sleep(0.08)
            self.callback_metrics = {"train_loss": loss.item()}
            for cb in self.callbacks:
                cb.on_train_epoch_end(self, module)
        for cb in self.callbacks:
            if hasattr(cb, "on_fit_end"):
                cb.on_fit_end(self)


class ProgressPrinter:
    def on_train_epoch_end(self, trainer, module):
        if trainer.strategy.is_global_zero:
            print(f"epoch {trainer.current_epoch} {trainer.callback_metrics} {os.getpid()}", flush=True)
