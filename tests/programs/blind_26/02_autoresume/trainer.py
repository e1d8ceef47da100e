import datetime
import logging
import math
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from checkpointing import CheckpointSaver, autoresume
from state import CharModel, State

log = logging.getLogger("trainer")


class CharBatches:
    """Synthetic text: each sample is a noisy walk over the alphabet."""

    def __init__(self, rank, batch_size, length=48, vocab=96):
        self.rank = rank
        self.batch_size = batch_size
        self.length = length
        self.vocab = vocab

    def batch(self, index):
        g = torch.Generator().manual_seed(index * 64 + self.rank)
        start = torch.randint(self.vocab, (self.batch_size, 1), generator=g)
        steps = torch.randint(1, 4, (self.batch_size, self.length), generator=g)
        return (start + steps.cumsum(1)) % self.vocab


class Trainer:
    def __init__(self, rank, world, args):
        torch.manual_seed(args.seed)
        self.rank = rank
        self.world = world
        self.args = args
        model = CharModel()
        self.state = State(model, torch.optim.AdamW(model.parameters(), lr=args.lr))
        self.saver = CheckpointSaver(args.save_folder, rank, args.save_interval)
        if args.autoresume:
            autoresume(args.save_folder, rank, self.state)
        self.ddp = DistributedDataParallel(model)
        self.train_data = CharBatches(rank, args.batch_size)
        self.eval_data = CharBatches(1000 + rank, args.batch_size)

    def loss(self, model, tokens):
        logits = model(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def fit(self):
        state = self.state
        while state.timestamp.batch < self.args.max_batches:
            tokens = self.train_data.batch(state.timestamp.batch)
            loss = self.loss(self.ddp, tokens)
            state.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
            state.optimizer.step()
            state.timestamp.advance(self.args.batch_size * self.world)
            time.sleep(self.args.pace)
            if self.rank == 0 and state.timestamp.batch % self.args.log_interval == 0:
                log.info("[batch=%d/%d] loss/train %.4f", state.timestamp.batch, self.args.max_batches, loss.item())
            if state.timestamp.batch % self.args.eval_interval == 0:
                self.evaluate()
            self.saver.maybe_save(state)

    @torch.no_grad()
    def evaluate(self):
        self.state.model.eval()
        losses = torch.stack([self.loss(self.state.model, self.eval_data.batch(i)) for i in range(self.args.eval_batches)])
        gathered = [torch.empty_like(losses) for _ in range(self.world)]
        dist.all_gather(gathered, losses)
        metric = torch.cat(gathered).mean().item()
        self.state.best_metric = min(self.state.best_metric, metric)
        self.state.model.train()
        if self.rank == 0:
            log.info("[eval batch=%d] loss/eval %.4f perplexity %.2f best %.4f", self.state.timestamp.batch, metric,
                     math.exp(metric), self.state.best_metric)


def train_rank(rank, world, port, args):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=args.dist_timeout))
    trainer = Trainer(rank, world, args)
    trainer.fit()
    dist.destroy_process_group()
