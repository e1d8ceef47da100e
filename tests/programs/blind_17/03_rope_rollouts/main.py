"""Fine-tunes a small hybrid-attention decoder with several data-parallel workers on rollouts of a copy task."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from model import HybridDecoder, ModelConfig

LAG = 3


def sample_batch(generator, batch, length, vocab):
    """Sequences in which the answer at t is the token at t - LAG."""
    tokens = torch.randint(1, vocab, (batch, length), generator=generator)
    targets = torch.full_like(tokens, -100)
    targets[:, LAG:] = tokens[:, :-LAG]
    return tokens, targets


def batch_loss(model, tokens, targets):
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    mask = targets != -100
    reward = (logits.argmax(-1)[mask] == targets[mask]).float().mean()
    return loss, reward


def pretrain(args, path):
    """The base model that the fine-tuning starts from."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    config = ModelConfig()
    model = HybridDecoder(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(args.seed)
    started = time.monotonic()
    reward = 0.0
    for step in range(args.pretrain_steps):
        loss, reward = batch_loss(model, *sample_batch(generator, 24, 32, config.vocab_size))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if time.monotonic() - started > args.pretrain_seconds:
            break
    torch.save(model.state_dict(), path)
    logging.info("base model: %d steps, loss %.3f, reward %.3f, %.1f s", step + 1, loss.item(), reward,
                 time.monotonic() - started)


class RolloutTrainer:
    def __init__(self, rank, args, checkpoint):
        self.rank = rank
        self.args = args
        self.config = ModelConfig()
        model = HybridDecoder(self.config)
        model.load_state_dict(torch.load(checkpoint, weights_only=True))
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.generator = torch.Generator().manual_seed(args.seed + 100 + rank)
        self.log = logging.getLogger(f"rank{rank}")

    @torch.no_grad()
    def evaluate(self):
        fixed = torch.Generator().manual_seed(5)
        loss, reward = batch_loss(self.model.module, *sample_batch(fixed, 32, 32, self.config.vocab_size))
        return loss.item(), reward.item()

    def run(self):
        started = time.monotonic()
        step = 0
        while True:
            stop = torch.tensor([time.monotonic() - started > self.args.train_seconds], dtype=torch.int32)
            dist.broadcast(stop, 0)
            if stop.item():
                break
            tokens, targets = sample_batch(self.generator, self.args.batch_size, 32, self.config.vocab_size)
            loss, reward = batch_loss(self.model, tokens, targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            step += 1
            if step % self.args.log_every == 0:
                held_loss, held_reward = self.evaluate()
                self.log.info("step %d rollout loss %.3f reward %.3f held-out loss %.3f reward %.3f", step,
                              loss.item(), reward.item(), held_loss, held_reward)
            time.sleep(0.05)


def worker(rank, args, port, checkpoint):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    threading.Thread(target=lambda: (time.sleep(115), os._exit(0)), daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    RolloutTrainer(rank, args, checkpoint).run()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-6)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--pretrain-steps", type=int, default=70)
    parser.add_argument("--pretrain-seconds", type=float, default=8)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--train-seconds", type=float, default=105)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    checkpoint = os.path.join(tempfile.mkdtemp(prefix="rollouts_"), "base.pt")
    pretrain(args, checkpoint)
    mp.spawn(worker, args=(args, free_port(), checkpoint), nprocs=args.world_size)


if __name__ == "__main__":
    main()
