import argparse
import logging
import os
import tempfile

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logger = get_logger(__name__)


class LoraLinear(nn.Module):
    def __init__(self, dim, rank=4):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.base.requires_grad_(False)
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--max_train_steps", type=int, default=2000)
    p.add_argument("--checkpointing_steps", type=int, default=60)
    p.add_argument("--gradient_accumulation_steps", type=int, default=2)
    p.add_argument("--project_dir", default=os.path.join(tempfile.gettempdir(), "lora_dit"))
    return p.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.gradient_accumulation_steps)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dit = nn.Sequential(*[m for _ in range(4) for m in (LoraLinear(64), nn.SiLU())])
    optimizer = torch.optim.AdamW([p for p in dit.parameters() if p.requires_grad], lr=1e-3)
    x = torch.randn(20000, 64)
    loader = DataLoader(TensorDataset(x, x.roll(1, 1)), batch_size=16, shuffle=True)
    dit, optimizer, loader = accelerator.prepare(dit, optimizer, loader)
    global_step = 0
    while global_step < args.max_train_steps:
        for noisy, clean in loader:
            with accelerator.accumulate(dit):
                loss = nn.functional.mse_loss(dit(noisy), clean)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
                if global_step % 20 == 0:
                    logger.info("step %d loss %.4f", global_step, loss.item())
            if accelerator.sync_gradients and accelerator.is_main_process \
                    and global_step % args.checkpointing_steps == 0:
                logger.info("saving checkpoint in global_step=%d", global_step)
                save_path = os.path.join(args.project_dir, f"checkpoint-{global_step}")
                os.makedirs(save_path, exist_ok=True)
                accelerator.wait_for_everyone()
                unwrapped = accelerator.unwrap_model(dit)
                keys = {k for k, p in unwrapped.named_parameters() if p.requires_grad}
                state = {k: v for k, v in unwrapped.state_dict().items() if k in keys}
                torch.save(state, os.path.join(save_path, "dit_lora.pt"))
            if global_step >= args.max_train_steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
