"""Train a variant tagger and validate it continuously in a second process."""
import argparse
import logging
import time

import torch
import torch.multiprocessing as mp

from data import VariantStream
from model import Tagger
from validate import Validator

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--length", type=int, default=99)
    p.add_argument("--channels", type=int, default=20)
    p.add_argument("--tasks", type=int, default=9)
    p.add_argument("--val-batches", type=int, default=6000, help="batches of one validation pass")
    p.add_argument("--pace", type=float, default=0.05)
    return p.parse_args()


def validation_process(args, model):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    validator = Validator(model, VariantStream(args, seed=99), args)
    while True:
        validator.run()


def train(args, model):
    stream = VariantStream(args, seed=1)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        x, y = stream.batch()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y.float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        time.sleep(args.pace)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Tagger(args.channels, args.tasks)
    model.share_memory()
    ctx = mp.get_context("fork")
    val = ctx.Process(target=validation_process, args=(args, model), name="validation", daemon=True)
    val.start()
    train(args, model)


if __name__ == "__main__":
    main()
