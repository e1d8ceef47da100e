"""Tensor-parallel LM server on two ranks; rank 0 takes the requests."""
import argparse
import logging
import os
import queue
import random
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from parallel import TensorParallelLM

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "nccl" if device == "cuda" else "gloo"
log = logging.getLogger("server")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--mean-gap", type=float, default=4.0, help="seconds between requests")
    p.add_argument("--max-new", type=int, default=24)
    p.add_argument("--duration", type=float, default=125.0)
    return p.parse_args()


class Traffic(threading.Thread):
    """Replays an evening's traffic: few users, short prompts."""

    def __init__(self, inbox, gap, max_new):
        super().__init__(daemon=True, name="traffic")
        self.inbox, self.gap, self.max_new = inbox, gap, max_new
        self.rng = random.Random(3)

    def run(self):
        number = 0
        while True:
            time.sleep(min(self.rng.expovariate(1 / self.gap), 3 * self.gap))
            number += 1
            prompt = [self.rng.randrange(16000) for _ in range(self.rng.randint(8, 64))]
            self.inbox.put((number, prompt, self.rng.randint(4, self.max_new), time.monotonic()))


class Engine:
    def __init__(self, args, rank):
        self.rank = rank
        torch.manual_seed(11)
        self.model = TensorParallelLM(args.tp).to(device).eval()
        self.served = 0
        self.generate(torch.zeros(1, 16, dtype=torch.long, device=device), 4)

    def _announce(self, length, max_new):
        header = torch.tensor([length, max_new], device=device)
        dist.broadcast(header, src=0)
        return header.tolist()

    def _share_prompt(self, prompt, length):
        if prompt is None:
            ids = torch.empty(1, length, dtype=torch.long, device=device)
        else:
            ids = torch.tensor([prompt], device=device)
        dist.broadcast(ids, src=0)
        return ids

    @torch.inference_mode()
    def generate(self, ids, max_new):
        for _ in range(max_new):
            nxt = self.model(ids).argmax(-1, keepdim=True)
            ids = torch.cat([ids, nxt], dim=1)
        return ids[0].tolist()

    def lead(self, inbox):
        while True:
            number, prompt, max_new, arrived = inbox.get()
            self._announce(len(prompt), max_new)
            out = self.generate(self._share_prompt(prompt, len(prompt)), max_new)
            self.served += 1
            log.info("request %d: %d prompt, %d new tokens, %.0f ms", number, len(prompt),
                     len(out) - len(prompt), 1e3 * (time.monotonic() - arrived))

    def follow(self):
        while True:
            length, max_new = self._announce(0, 0)
            self.generate(self._share_prompt(None, length), max_new)
            self.served += 1


def serve(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s tp{rank} %(message)s")
    end = threading.Timer(args.duration, os._exit, (0,))
    end.daemon = True
    end.start()
    os.environ["NCCL_HOSTID"] = f"node{rank}"
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.tp)
    engine = Engine(args, rank)
    if rank == 0:
        inbox = queue.Queue()
        Traffic(inbox, args.mean_gap, args.max_new).start()
        log.info("ready")
        engine.lead(inbox)
    else:
        engine.follow()


if __name__ == "__main__":
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(serve, args=(args, port), nprocs=args.tp)
