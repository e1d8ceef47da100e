import argparse
import glob
import logging
import os

import torch
from torch import nn

from text_data import BpeTokenizer, DataCollatorForMLM, LineByLineTextDataset
from trainer import Trainer

log = logging.getLogger("run_mlm")
HERE = os.path.dirname(os.path.abspath(__file__))


class TinyRoberta(nn.Module):
    def __init__(self, vocab, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--output_dir", default=os.path.join(HERE, "runs"))
    p.add_argument("--lines", type=int, default=3_200_000)
    p.add_argument("--block_size", type=int, default=128)
    p.add_argument("--vocab_size", type=int, default=8000)
    p.add_argument("--per_device_train_batch_size", type=int, default=32)
    p.add_argument("--dataloader_num_workers", type=int, default=2)
    p.add_argument("--learning_rate", type=float, default=1e-4)
    p.add_argument("--max_steps", type=int, default=2_500_000)
    p.add_argument("--logging_steps", type=int, default=50)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def get_last_checkpoint(folder):
    found = glob.glob(os.path.join(folder, "checkpoint-*"))
    return max(found, key=lambda p: int(p.rsplit("-", 1)[1])) if found else None


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s|%(name)s] %(asctime)s >> %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    tokenizer = BpeTokenizer(args.vocab_size)
    dataset = LineByLineTextDataset(tokenizer, args.lines, args.block_size)
    checkpoint = get_last_checkpoint(args.output_dir)
    if checkpoint:
        log.info("Checkpoint detected, resuming training at %s", checkpoint)
    trainer = Trainer(TinyRoberta(args.vocab_size), args, dataset, DataCollatorForMLM(args.vocab_size))
    trainer.train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
