"""Character model on several ranks; a preempted job continues from its save folder."""
import argparse
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile

import torch
import torch.multiprocessing as mp

from state import CharModel, State
from trainer import train_rank


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--max-batches", type=int, default=20000)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--pace", type=float, default=0.01)
    p.add_argument("--log-interval", type=int, default=10)
    p.add_argument("--eval-interval", type=int, default=40)
    p.add_argument("--eval-batches", type=int, default=4)
    p.add_argument("--save-interval", type=int, default=20)
    p.add_argument("--dist-timeout", type=int, default=1800)
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--save-folder", default=None, help="default: a copy of the folder of the preempted demo job")
    p.add_argument("--no-autoresume", dest="autoresume", action="store_false")
    return p.parse_args()


def demo_folder(args):
    """The save folder as the first job left it when the node was reclaimed while it wrote batch 100."""
    folder = tempfile.mkdtemp(prefix="char-run-")
    torch.manual_seed(args.seed)
    model = CharModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    state = State(model, optimizer)
    tokens = torch.arange(24).view(2, 12)
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.timestamp.advance(args.batch_size * args.ranks)
        if state.timestamp.batch in (60, 80, 100):
            for rank in range(args.ranks):
                done = state.timestamp.batch < 100 or rank != args.ranks - 1
                name = f"ba{state.timestamp.batch}-rank{rank}.pt" + ("" if done else ".tmp")
                torch.save(state.state_dict(), os.path.join(folder, name))
    with open(os.path.join(folder, f"ba100-rank{args.ranks - 1}.pt.tmp"), "r+b") as f:
        f.truncate(40960)
    return folder


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    torch.set_num_threads(1)
    temporary = args.save_folder is None
    if temporary:
        args.save_folder = demo_folder(args)
    try:
        logging.info("save folder %s: %s", args.save_folder, ", ".join(sorted(os.listdir(args.save_folder))))
        mp.start_processes(train_rank, (args.ranks, free_port(), args), nprocs=args.ranks, daemon=True,
                           start_method="fork")
    finally:
        if temporary:
            shutil.rmtree(args.save_folder, ignore_errors=True)


if __name__ == "__main__":
    main()
