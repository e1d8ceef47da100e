import argparse
import logging
import os
import random
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from generator import Decoder, TokenGenerator

log = logging.getLogger("chat")


def parse_args():
    p = argparse.ArgumentParser(description="answer a list of prompts with a tensor parallel model")
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--vocab", type=int, default=384)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--max-tokens", type=int, default=200)
    p.add_argument("--seed", type=int, default=1234)
    p.add_argument("--weights-seed", type=int, default=7)
    return p.parse_args()


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class PromptSource:
    """Prompts are read on rank 0 only; the other ranks get them by broadcast."""

    def __init__(self, vocab, rank):
        self.rank = rank
        self.rng = random.Random(99)
        self.vocab = vocab

    def next(self):
        box = [None]
        if self.rank == 0:
            box[0] = [self.rng.randrange(8, self.vocab) for _ in range(self.rng.randint(8, 24))]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.tp)
    seed_everything(args.seed + rank)
    model = Decoder(args, rank, args.tp).eval()
    generator = TokenGenerator(model, stop_tokens=range(8))
    source = PromptSource(args.vocab, rank)
    log.info("model ready, %d parameters on this rank", sum(p.numel() for p in model.parameters()))
    answered = 0
    while True:
        prompt = source.next()
        start = time.monotonic()
        answer = list(generator.generate(prompt, args.temperature, args.max_tokens))
        answered += 1
        if rank == 0:
            log.info("prompt %d: %d tokens in, %d tokens out, %.2f s", answered, len(prompt), len(answer),
                     time.monotonic() - start)


def main():
    args = parse_args()
    mp.spawn(worker, args=(args, free_port()), nprocs=args.tp)


if __name__ == "__main__":
    main()
