import logging
import time

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("trainer")


class TrainingState:
    def __init__(self, rank, model, optimizer):
        self.rank, self.model, self.optimizer = rank, model, optimizer
        self.epoch, self.epochs_since_last_improvement, self.best_model_metric = 0, 0, None


class Trainer:
    def __init__(self, epochs, early_stop_after):
        self.epochs, self.early_stop_after = epochs, early_stop_after

    def continue_training(self, state):
        if state.epoch >= self.epochs:
            return False
        if self.early_stop_after and state.epochs_since_last_improvement >= self.early_stop_after:
            log.info("no improvement for %d epochs, stop", self.early_stop_after)
            return False
        return True

    def run_epoch(self, state, batches):
        tot = 0.0
        for x, y in batches:
            loss = nn.functional.cross_entropy(state.model(x), y)
            state.optimizer.zero_grad()
            loss.backward()
            for p in state.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            state.optimizer.step()
            tot += loss.item()
            time.sleep(0.05)
        return tot / len(batches)

    def save_checkpoint(self, state, metric):
        state.best_model_metric = metric
        state.epochs_since_last_improvement = 0

    def train(self, state, train_batches, eval_fn):
        while self.continue_training(state):
            state.epoch += 1
            state.epochs_since_last_improvement += 1
            loss = self.run_epoch(state, train_batches)
            metric = eval_fn(state)
            if state.rank == 0:
                log.info("epoch %d loss %.4f acc %.4f", state.epoch, loss, metric)
                if state.best_model_metric is None or metric > state.best_model_metric:
                    self.save_checkpoint(state, metric)
        dist.barrier()
        return state.best_model_metric
