import argparse
import logging
import queue
import time

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, IterableDataset

from model import TinyLM
from optim_metrics import OptimMetrics

log = logging.getLogger("train")


def setup_logging(name):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{name}] %(message)s")


class MarkovText(IterableDataset):
    """Token windows of a random first-order source."""

    def __init__(self, vocab, length, seed):
        self.vocab, self.length, self.seed = vocab, length, seed

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        gen = torch.Generator().manual_seed(self.seed + (info.id if info else 0))
        table = torch.randint(0, self.vocab, (self.vocab, 4), generator=torch.Generator().manual_seed(1))
        while True:
            choice = torch.randint(0, 4, (self.length,), generator=gen)
            token = int(torch.randint(0, self.vocab, (1,), generator=gen))
            row = []
            for c in choice.tolist():
                row.append(token)
                token = int(table[token, c])
            yield torch.tensor(row)


def validator(args, inbox, device):
    setup_logging("valid")
    torch.set_num_threads(1)
    model = TinyLM(args.vocab, args.dim, layers=args.layers, context=args.context).to(device).eval()
    batches = DataLoader(MarkovText(args.vocab, args.context + 1, 900), batch_size=args.batch_size)
    while True:
        step, weights = inbox.get()
        model.load_state_dict(weights)
        total = 0.0
        with torch.inference_mode():
            for i, tokens in enumerate(batches):
                total += model.loss(tokens.to(device)).item()
                if i + 1 == args.valid_batches:
                    break
        log.info("step %d validation loss %.4f", step, total / args.valid_batches)


def train(args, device, snapshots):
    torch.manual_seed(args.seed)
    model = TinyLM(args.vocab, args.dim, layers=args.layers, context=args.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    metrics = OptimMetrics(model, optimizer, args.max_norm)
    loader = DataLoader(MarkovText(args.vocab, args.context + 1, args.seed), batch_size=args.batch_size,
                        num_workers=args.loader_workers, pin_memory=device.type == "cuda",
                        multiprocessing_context="spawn", prefetch_factor=8)
    log.info("%.2f M parameters in %d tensors on %s", sum(p.numel() for p in model.parameters()) / 1e6,
             len(list(model.parameters())), device)
    started, tokens_seen, last = time.time(), 0, time.time()
    for step, tokens in enumerate(loader, 1):
        tokens = tokens.to(device, non_blocking=True)
        loss = model.loss(tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        metrics.clip_and_collect()
        optimizer.step()
        tokens_seen += tokens.numel()
        if step % args.log_every == 0:
            now = time.time()
            log.info("step %d loss %.4f | %.1f steps/s, %.0f tokens/s | largest gradients: %s", step, loss.item(),
                     args.log_every / (now - last), tokens_seen / (now - started), metrics.summary())
            last = now
        if step % args.valid_every == 0:
            try:
                snapshots.put_nowait((step, {k: v.detach().cpu() for k, v in model.state_dict().items()}))
            except queue.Full:
                pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--loader-workers", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--valid-every", type=int, default=400)
    parser.add_argument("--valid-batches", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    setup_logging("train")
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ctx = mp.get_context("spawn")
    snapshots = ctx.Queue(maxsize=1)
    ctx.Process(target=validator, args=(args, snapshots, device), name="validator", daemon=True).start()
    train(args, device, snapshots)


if __name__ == "__main__":
    main()
