"""Trains a tiny world model and renders previews of its rollouts in helper processes."""
import argparse
import logging
import tempfile
import time

import torch

from model import WorldModel, sample_batch
from preview import PreviewService

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=10**7)
    p.add_argument("--preview-interval", type=float, default=0.2, help="seconds between previews")
    p.add_argument("--preview-length", type=int, default=48)
    p.add_argument("--renderers", type=int, default=2)
    p.add_argument("--keep", type=int, default=20, help="previews kept on disk")
    p.add_argument("--step-time", type=float, default=0.02, help="pace of the training loop")
    return p.parse_args()


def train(args, out_dir):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    previews = PreviewService(out_dir, args.renderers, args.keep)
    model = WorldModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    last_preview = last_log = time.time()
    losses = []
    for step in range(args.steps):
        batch = sample_batch(32)
        loss = model.loss(batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        now = time.time()
        if now - last_preview >= args.preview_interval:
            last_preview = now
            rollout = model.imagine(batch[0, 0], args.preview_length)
            previews.submit(step, rollout.numpy())
        if now - last_log >= 5:
            last_log = now
            log.info("step %d loss %.4f, %d previews submitted, %d on disk",
                     step, sum(losses) / len(losses), previews.submitted, previews.on_disk())
            losses.clear()
        time.sleep(args.step_time)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="previews-") as out_dir:
        train(args, out_dir)


if __name__ == "__main__":
    main()
