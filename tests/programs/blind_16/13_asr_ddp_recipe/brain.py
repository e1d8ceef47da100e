"""The part of the Brain class that the recipe uses."""
import enum
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger(__name__)


class Stage(enum.Enum):
    TRAIN = 1
    VALID = 2
    TEST = 3


def if_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def run_on_main(func, args=()):
    """Run func on the main process, the others wait until it is done."""
    if if_main_process():
        func(*args)
    dist.barrier()


class Brain:
    def __init__(self, module, opt_class, hparams):
        self.module = DistributedDataParallel(module)
        self.optimizer = opt_class(self.module.parameters())
        self.hparams = hparams

    def fit_batch(self, batch):
        self.optimizer.zero_grad()
        loss = self.compute_objectives(self.compute_forward(batch, Stage.TRAIN), batch, Stage.TRAIN)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 5.0)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate_batch(self, batch, stage):
        return self.compute_objectives(self.compute_forward(batch, stage), batch, stage)

    def fit(self, epoch_counter, train_set, valid_set):
        for epoch in epoch_counter:
            self._fit_train(train_set, epoch)
            self._fit_valid(valid_set, epoch)

    def _fit_train(self, train_set, epoch):
        self.on_stage_start(Stage.TRAIN, epoch)
        self.module.train()
        total = 0.0
        for step, batch in enumerate(train_set, 1):
            total += self.fit_batch(batch).item()
        self.on_stage_end(Stage.TRAIN, total / step, epoch)

    def _fit_valid(self, valid_set, epoch):
        self.on_stage_start(Stage.VALID, epoch)
        self.module.eval()
        total = 0.0
        for step, batch in enumerate(valid_set, 1):
            total += self.evaluate_batch(batch, Stage.VALID).item()
        # statistics, checkpoint and annealing: only on the main process
        run_on_main(self.on_stage_end, (Stage.VALID, total / step, epoch))

    def evaluate(self, test_set):
        if if_main_process():
            logger.info("Evaluating the best checkpoint")
        run_on_main(self.on_evaluate_start)
        self.module.eval()
        total = 0.0
        for step, batch in enumerate(test_set, 1):
            total += self.evaluate_batch(batch, Stage.TEST).item()
        run_on_main(self.on_stage_end, (Stage.TEST, total / step, None))

    def on_stage_start(self, stage, epoch):
        pass

    def on_stage_end(self, stage, loss, epoch):
        pass

    def on_evaluate_start(self):
        pass
