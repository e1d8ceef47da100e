"""Caption encoders: each process asks the tokenizer server for ids and trains on them."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import socket
import threading
import time

import torch
from torch import nn

import tokenizer_server
import wire

SUBJECTS = ["a dog", "two children", "an old man", "a red car", "a cat", "three cyclists"]
VERBS = ["sits on", "runs across", "looks at", "is parked near", "sleeps under"]
PLACES = ["the beach", "a wooden bench", "the street", "a green field", "the kitchen table"]
CAFES = ["the café", "a crêperie", "the theatre of Orléans", "a pâtisserie", "the Zürich station"]


def captions(seed, n_plain, n_total):
    """The crowd-sourced part of the corpus follows the stock-photo part."""
    rng = random.Random(seed)
    for i in range(n_total):
        places = PLACES if i < n_plain else PLACES + CAFES
        yield f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(places)}."


class TokenizerClient:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def encode(self, text):
        wire.send_text(self.sock, text)
        return [int(t) for t in wire.recv_text(self.sock).split()]


class CaptionEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, ids, offsets):
        return nn.functional.normalize(self.proj(self.embed(ids, offsets)), dim=1)


def encode_shard(shard, port, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s shard{shard} %(message)s", force=True)
    log = logging.getLogger("encoder")
    limit = threading.Timer(args.max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    torch.manual_seed(shard)
    client = TokenizerClient(port)
    model = CaptionEncoder(args.vocab, args.dim)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch, done, started = [], 0, time.time()
    for text in captions(shard, args.plain + 40 * shard, args.captions):
        batch.append(client.encode(text))
        if len(batch) < args.batch:
            continue
        ids = torch.tensor([i for b in batch for i in b])
        offsets = torch.tensor([0] + [len(b) for b in batch[:-1]]).cumsum(0)
        z = model(ids, offsets)
        noisy = nn.functional.dropout(z, 0.2)
        loss = nn.functional.cross_entropy(z @ noisy.T / 0.1, torch.arange(len(batch)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        done += len(batch)
        batch = []
        if done % (args.batch * 10) == 0:
            log.info("%d captions, loss %.3f, %.0f captions/s", done, loss.item(),
                     done / (time.time() - started))
        time.sleep(args.pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=3)
    p.add_argument("--captions", type=int, default=100_000)
    p.add_argument("--plain", type=int, default=320)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--vocab", type=int, default=20_000)
    p.add_argument("--pause", type=float, default=0.1)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s")

    ctx = mp.get_context("fork")
    ours, theirs = ctx.Pipe()
    server = ctx.Process(target=tokenizer_server.serve, name="tokenizer",
                         args=(args.vocab, theirs, args.max_seconds), daemon=True)
    server.start()
    port = ours.recv()
    workers = [ctx.Process(target=encode_shard, args=(s, port, args), name=f"shard{s}", daemon=True)
               for s in range(args.shards)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    logging.info("all shards encoded")
    server.terminate()


if __name__ == "__main__":
    main()
