import argparse
import tempfile
import time

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from dataset import CrudeDataset
from shards import write_shards


class TwoTower(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.vision = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                    nn.Flatten(), nn.Linear(32 * 64, width))
        self.words = nn.EmbeddingBag(1001, width, padding_idx=0)

    def forward(self, image, caption):
        return F.normalize(self.vision(image), dim=-1), F.normalize(self.words(caption), dim=-1)


def parse_args():
    p = argparse.ArgumentParser(description="Train image and caption towers on crawled shards")
    p.add_argument("--shards", type=int, default=8)
    p.add_argument("--records", type=int, default=500)
    p.add_argument("--batch-size", type=int, default=48)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--minutes", type=float, default=1.5)
    p.add_argument("--log-every", type=int, default=25)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="crawl_")
    paths = write_shards(root, args.shards, args.records, args.seed)
    loader = DataLoader(CrudeDataset(paths, args.batch_size, args.seed), batch_size=None,
                        num_workers=args.num_workers)
    model = TwoTower()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.time()
    for step, batch in enumerate(loader, 1):
        image, text = model(batch["image"], batch["caption"])
        logits = image @ text.t() / 0.07
        target = torch.arange(len(logits))
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            print(f"step {step}: loss {loss.item():.3f}, {step / (time.time() - began):.1f} steps/s", flush=True)
        if time.time() - began > args.minutes * 60:
            break
    print(f"finished after {step} steps", flush=True)


if __name__ == "__main__":
    main()
