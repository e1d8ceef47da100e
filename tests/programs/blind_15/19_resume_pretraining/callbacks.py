"""Callbacks of the trainer: global state (per rank), evaluation, logging."""
import logging
import os
from dataclasses import dataclass
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

logger = logging.getLogger("trainer.callbacks")


@dataclass
class TrainerState:
    global_step: int = 0
    epoch: int = 0
    curr_step: int = 0


def global_state_path(load_path, rank):
    return os.path.join(load_path, "global_state", f"global_state_rank_{rank}.pt")


class Callback:
    def __init__(self, trainer):
        self.trainer = trainer

    def on_train_begin(self, state):
        pass

    def on_step_end(self, state, loss):
        pass


class GlobalStateCallback(Callback):
    def __init__(self, trainer, rank):
        super().__init__(trainer)
        self.rank = rank

    def on_train_begin(self, state):
        saved = self.load_global_state()
        if saved is None:
            return
        state.global_step = saved["global_step"]
        state.epoch = saved["epoch"]
        state.curr_step = saved["curr_step"]
        torch.set_rng_state(saved["torch_rng"])
        logger.info("resumed at step %d (epoch %d)", state.global_step, state.epoch)

    def load_global_state(self) -> Optional[Dict[str, Any]]:
        load_path = self.trainer.args.load_path
        if load_path is None:
            return None
        state_path = global_state_path(load_path, self.rank)
        if not os.path.exists(state_path):
            logger.warning("No trainer state at %s; resuming weights only.", state_path)
            return None
        return torch.load(state_path)

    def on_step_end(self, state, loss):
        if state.global_step % self.trainer.args.save_steps:
            return
        path = os.path.join(self.trainer.args.output_dir, f"global_step_{state.global_step}")
        os.makedirs(os.path.join(path, "global_state"), exist_ok=True)
        torch.save({"global_step": state.global_step, "epoch": state.epoch, "curr_step": state.curr_step,
                    "torch_rng": torch.get_rng_state()}, global_state_path(path, self.rank))
        if self.rank == 0:
            torch.save(self.trainer.model.state_dict(), os.path.join(path, "model.pt"))


class EvaluateCallback(Callback):
    def on_step_end(self, state, loss):
        if state.global_step % self.trainer.args.eval_steps:
            return
        local = self.trainer.evaluate()
        gathered = [torch.zeros_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, local)
        logger.info("step %d eval loss %.4f", state.global_step, torch.stack(gathered).mean().item())


class LoggingCallback(Callback):
    def on_step_end(self, state, loss):
        if state.global_step % self.trainer.args.log_steps == 0 and dist.get_rank() == 0:
            logger.info("step %d loss %.4f", state.global_step, loss)
