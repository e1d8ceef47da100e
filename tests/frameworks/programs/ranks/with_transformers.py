"""The Trainer of transformers in two ranks; `failing`: only rank 0 evaluates."""

import sys
import tempfile
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        tokens = torch.arange(8) + index % 8
        return {"input_ids": tokens, "labels": tokens}


class Pause(TrainerCallback):
    trainer = None

    def on_step_end(self, args, state, control, **facts):
        time.sleep(0.1)
        if "failing" in sys.argv and state.global_step == 20 and state.is_world_process_zero:
            print("fault", flush=True)
            self.trainer.evaluate()


if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            ddp_backend="gloo",
            max_steps=80,
            per_device_train_batch_size=2,
            dataloader_num_workers=1,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        pause = Pause()
        trainer = Trainer(
            GPT2LMHeadModel(config),
            arguments,
            train_dataset=Tokens(400),
            eval_dataset=Tokens(40),
            callbacks=[pause],
        )
        pause.trainer = trainer
        trainer.train()
    print("result", arguments.process_index, trainer.state.global_step, flush=True)
