import argparse
import time

import torch
from torch.utils.data import DataLoader

from audio import AudioProcessor
from dataset import SpeakerDataset
from model import GE2ELoss, SpeakerEncoder


def setup_loader(ap, c):
    dataset = SpeakerDataset(ap, c.num_speakers, c.utterances, c.num_utters_per_speaker, c.seq_len)
    return DataLoader(dataset, batch_size=c.num_speakers_in_batch, shuffle=False, num_workers=1,
                      collate_fn=dataset.collate_fn)


def train(model, criterion, optimizer, loader, c):
    step = 0
    avg_loss = avg_loader_time = 0.0
    end = time.time()
    for mels in loader:
        loader_time = time.time() - end
        start = time.time()
        dvecs = model(mels).view(c.num_speakers_in_batch, c.num_utters_per_speaker, -1)
        loss = criterion(dvecs)
        optimizer.zero_grad()
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        optimizer.step()
        step += 1
        avg_loss = 0.95 * avg_loss + 0.05 * loss.item() if step > 1 else loss.item()
        avg_loader_time = 0.8 * avg_loader_time + 0.2 * loader_time if step > 1 else loader_time
        print(f"   | > Step:{step}  Loss:{loss.item():.5f}  AvgLoss:{avg_loss:.5f}  GradNorm:{grad_norm:.3f}  "
              f"StepTime:{time.time() - start:.2f}  LoaderTime:{loader_time:.2f}  "
              f"AvgLoaderTime:{avg_loader_time:.2f}", flush=True)
        if step >= c.max_steps:
            return
        end = time.time()


def parse_args():
    p = argparse.ArgumentParser(description="Train the speaker encoder")
    p.add_argument("--num_speakers", type=int, default=400)
    p.add_argument("--utterances", type=int, default=60)
    p.add_argument("--num_speakers_in_batch", type=int, default=16)
    p.add_argument("--num_utters_per_speaker", type=int, default=5)
    p.add_argument("--seq_len", type=int, default=120)
    p.add_argument("--max_steps", type=int, default=100_000)
    p.add_argument("--lr", type=float, default=1e-3)
    return p.parse_args()


def main():
    c = parse_args()
    torch.manual_seed(54321)
    torch.set_num_threads(1)
    ap = AudioProcessor()
    loader = setup_loader(ap, c)
    model = SpeakerEncoder(ap.num_mels)
    criterion = GE2ELoss()
    params = list(model.parameters()) + list(criterion.parameters())
    optimizer = torch.optim.Adam(params, lr=c.lr)
    print(f" > Model has {sum(p.numel() for p in params)} parameters", flush=True)
    train(model, criterion, optimizer, loader, c)


if __name__ == "__main__":
    main()
