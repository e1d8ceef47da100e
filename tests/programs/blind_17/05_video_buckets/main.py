"""LoRA fine-tuning of a small video model on clips in resolution buckets."""
import argparse
import logging
import os
import tempfile
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import BucketSampler, VideoDataset, collate

log = logging.getLogger("train_text_to_video_lora")


class LoRALinear(nn.Module):
    def __init__(self, dim, rank):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.base.requires_grad_(False)
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class VideoTransformer(nn.Module):
    def __init__(self, dim=64, depth=2, rank=8):
        super().__init__()
        self.patch = nn.Conv3d(3, dim, (2, 16, 16), (2, 16, 16))
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), LoRALinear(dim, rank), nn.GELU())
                                    for _ in range(depth))
        self.head = nn.Linear(dim, dim)

    def forward(self, video):
        x = self.patch(video).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x), x


class StepTimer:
    """Time between two optimizer steps, and how much of it was spent in the model."""

    def __init__(self):
        self.last = time.monotonic()
        self.model_seconds = 0.0
        self.started = self.last

    def step(self):
        now = time.monotonic()
        interval, self.last = now - self.last, now
        model, self.model_seconds = self.model_seconds, 0.0
        return interval, model


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-clips", type=int, default=6000)
    parser.add_argument("--train-batch-size", type=int, default=8)
    parser.add_argument("--dataloader-num-workers", type=int, default=2)
    parser.add_argument("--height-buckets", type=int, nargs="+", default=[64, 96])
    parser.add_argument("--width-buckets", type=int, nargs="+", default=[96, 128])
    parser.add_argument("--frame-buckets", type=int, nargs="+", default=[12])
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--num-train-epochs", type=int, default=5)
    parser.add_argument("--checkpointing-steps", type=int, default=200)
    parser.add_argument("--max-seconds", type=int, default=125)
    parser.add_argument("--output-dir", default=None)
    return parser.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s")
    output_dir = args.output_dir or tempfile.mkdtemp(prefix="video_lora_")
    threading.Thread(target=lambda: (time.sleep(args.max_seconds + 10), os._exit(0)), daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    train_dataset = VideoDataset(args.num_clips, args.height_buckets, args.width_buckets, args.frame_buckets)
    train_dataloader = DataLoader(
        train_dataset,
        batch_size=1,
        sampler=BucketSampler(train_dataset, batch_size=args.train_batch_size, shuffle=True),
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
    )
    model = VideoTransformer(rank=args.rank)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.learning_rate)
    log.info("***** Running training *****")
    log.info("  Num examples = %d", len(train_dataset))
    log.info("  Num trainable parameters = %d", sum(p.numel() for p in trainable))
    log.info("  Batch size = %d, loader workers = %d", args.train_batch_size, args.dataloader_num_workers)

    timer = StepTimer()
    global_step = 0
    for epoch in range(args.num_train_epochs):
        for batch in train_dataloader:
            began = time.monotonic()
            noise = torch.randn_like(batch["videos"])
            pred, latents = model(batch["videos"] + 0.5 * noise)
            loss = nn.functional.mse_loss(pred, latents.detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            timer.model_seconds += time.monotonic() - began
            global_step += 1
            interval, model_seconds = timer.step()
            log.info("epoch %d step %d/%d loss %.4f %.2f s/step (model %.2f s)", epoch, global_step,
                     len(train_dataloader), loss.item(), interval, model_seconds)
            if global_step % args.checkpointing_steps == 0:
                torch.save(model.state_dict(), os.path.join(output_dir, f"checkpoint-{global_step}.pt"))
            if time.monotonic() - timer.started > args.max_seconds:
                log.info("stopping after %d s", args.max_seconds)
                return


if __name__ == "__main__":
    main()
