import argparse
import json
import logging
import os
import random
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, stream=sys.stderr,
                    format="%(asctime)s %(processName)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("train_network")

BUCKETS = [(64, 64), (48, 80), (80, 48), (56, 72), (72, 56)]


class BucketedImages(Dataset):
    """Images with captions, each assigned to the resolution bucket nearest to its aspect ratio."""

    def __init__(self, count, repeats, seed=7):
        rng = random.Random(seed)
        self.repeats = repeats
        self.entries = []
        for i in range(count):
            w, h = rng.randint(300, 1900), rng.randint(300, 1900)
            n_tags = rng.randint(2, 30)
            self.entries.append({
                "path": f"/data/train/10_subject/img_{i:05d}.png",
                "size": (w, h),
                "caption": ", ".join(f"tag{rng.randint(0, 900)}" for _ in range(n_tags)),
            })

    def __len__(self):
        return len(self.entries) * self.repeats

    def bucket_for(self, size):
        ratio = size[0] / size[1]
        return min(BUCKETS, key=lambda b: abs(b[0] / b[1] - ratio))

    def __getitem__(self, index):
        entry = self.entries[index % len(self.entries)]
        bucket = self.bucket_for(entry["size"])
        w, h = entry["size"]
        error = abs(w / h - bucket[0] / bucket[1])
        if error > 0.1:
            log.warning("image %s: aspect ratio error %.3f for bucket %s (image is %dx%d), it will be cropped",
                        entry["path"], error, bucket, w, h)
        tags = entry["caption"].split(", ")
        if len(tags) > 20:
            log.warning("image %s: caption has %d tags and is truncated: %s", entry["path"], len(tags),
                        entry["caption"])
        gen = torch.Generator().manual_seed(index)
        image = torch.rand(3, 96, 96, generator=gen)
        image = nn.functional.interpolate(image[None], size=bucket, mode="bilinear", align_corners=False)
        image = nn.functional.interpolate(image, size=(32, 32), mode="area")[0]
        return image, torch.tensor(hash(tags[0]) % 1000)


class Network(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, dim, 3, 2, 1), nn.SiLU(), nn.Conv2d(dim, dim * 2, 3, 2, 1), nn.SiLU())
        self.cond = nn.Embedding(1000, dim * 2)
        self.up = nn.Sequential(nn.ConvTranspose2d(dim * 2, dim, 4, 2, 1), nn.SiLU(),
                                nn.ConvTranspose2d(dim, 3, 4, 2, 1))

    def forward(self, x, tag):
        z = self.down(x)
        return self.up(z + self.cond(tag)[:, :, None, None])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    with open(args.config) as f:
        cfg = json.load(f)
    threading.Thread(target=lambda: (time.sleep(138), os._exit(0)), daemon=True).start()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    dataset = BucketedImages(cfg["images"], cfg["repeats"])
    loader = DataLoader(dataset, batch_size=cfg["batch_size"], shuffle=True, num_workers=cfg["workers"],
                        persistent_workers=True)
    model = Network(cfg["dim"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    print(f"{len(dataset)} images with repeats, {len(loader)} steps an epoch", flush=True)
    step = 0
    for epoch in range(1, args.epochs + 1):
        for image, tag in loader:
            noise = torch.randn_like(image)
            loss = nn.functional.mse_loss(model(image + noise, tag), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            time.sleep(0.03)
            print(json.dumps({"epoch": epoch, "epochs": args.epochs, "step": step, "loss": loss.item()}), flush=True)
        torch.save(model.state_dict(), os.path.join(cfg["output_dir"], f"network-{epoch:02d}.pt"))


if __name__ == "__main__":
    main()
