"""Train a hybrid CTC / attention model with DistributedDataParallel on CPU."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from data import SyntheticSpeech
from model import HybridASR, hybrid_loss

log = logging.getLogger("asr")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--utterances", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--ctc-weight", type=float, default=0.3)
    parser.add_argument("--minutes", type=float, default=2.0, help="stop after this many minutes")
    return parser.parse_args()


def train_one_epoch(model, loader, optimizer, args):
    model.train()
    total = 0.0
    for feats, tokens in loader:
        memory, ctc_logp = model.module.forward_encoder(feats)
        att_logits = model.module.forward_decoder(memory, tokens)
        loss = hybrid_loss(ctc_logp, att_logits, tokens, args.ctc_weight)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader, args):
    model.eval()
    total = 0.0
    for feats, tokens in loader:
        ctc_logp, att_logits = model.module(feats, tokens)
        total += hybrid_loss(ctc_logp, att_logits, tokens, args.ctc_weight).item()
    return total / len(loader)


def weight_norm(model):
    return torch.sqrt(sum((p.detach() ** 2).sum() for p in model.parameters())).item()


def run(rank, args, port, outdir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    torch.manual_seed(11)
    model = DDP(HybridASR())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    train_set = SyntheticSpeech(args.utterances, seed=1)
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    valid_loader = DataLoader(SyntheticSpeech(96, seed=2), batch_size=32)

    deadline = time.time() + 60 * args.minutes
    stop = torch.zeros(1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_loss = train_one_epoch(model, train_loader, optimizer, args)
        valid_loss = evaluate(model, valid_loader, args)
        log.info("epoch %d train %.4f valid %.4f |w| %.3f", epoch, train_loss, valid_loss,
                 weight_norm(model))
        if rank == 0:
            torch.save(model.module.state_dict(), os.path.join(outdir, "last.pt"))
            stop[0] = float(time.time() > deadline)
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="asr_exp_") as outdir:
        mp.spawn(run, args=(args, port, outdir), nprocs=args.world_size, join=True)


if __name__ == "__main__":
    main()
