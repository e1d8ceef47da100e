import dataclasses
import logging
import os
import re
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("trainer")


@dataclasses.dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 1000
    save_steps: int = 20
    logging_steps: int = 20
    batch_size: int = 16
    learning_rate: float = 3e-4
    seed: int = 42
    slot_seconds: float = 3600.0


def get_last_checkpoint(folder):
    if not os.path.isdir(folder):
        return None
    found = [d for d in os.listdir(folder) if re.fullmatch(r"checkpoint-\d+", d)]
    if not found:
        return None
    return os.path.join(folder, max(found, key=lambda d: int(d.split("-")[1])))


class Classifier(nn.Module):
    def __init__(self, vocab=2000, dim=96, layers=2, classes=5):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        return self.head(self.encoder(self.emb(ids)).mean(1))


class Reviews:
    """Endless synthetic reviews; the label depends on the tokens."""

    def __init__(self, rank, world_size, batch_size, seed):
        self.gen = torch.Generator().manual_seed(seed * world_size + rank)
        self.batch_size = batch_size

    def next_batch(self):
        ids = torch.randint(0, 2000, (self.batch_size, 32), generator=self.gen)
        return ids, (ids.float().mean(1) // 400).long().clamp(0, 4)


class Trainer:
    def __init__(self, model, args, rank, world_size):
        self.args, self.rank, self.world_size = args, rank, world_size
        self.module = model
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)
        self.data = Reviews(rank, world_size, args.batch_size, args.seed)
        self.global_step = 0

    def train(self, resume_from_checkpoint=None):
        started = time.monotonic()
        if resume_from_checkpoint is not None:
            self._load_checkpoint(resume_from_checkpoint)
        log.info("training from step %d", self.global_step)
        loss_fn = nn.CrossEntropyLoss()
        while self.global_step < self.args.max_steps:
            ids, labels = self.data.next_batch()
            loss = loss_fn(self.model(ids), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.global_step += 1
            if self.global_step % self.args.logging_steps == 0 and self.rank == 0:
                log.info("step %d loss %.4f", self.global_step, loss.item())
            if self.global_step % self.args.save_steps == 0:
                self._save_checkpoint()
                if self._slot_is_over(started):
                    log.info("time slot is over, leaving at step %d", self.global_step)
                    return False
        return True

    def _slot_is_over(self, started):
        flag = torch.tensor(float(time.monotonic() - started > self.args.slot_seconds))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def _save_checkpoint(self):
        if self.rank == 0:
            folder = os.path.join(self.args.output_dir, f"checkpoint-{self.global_step}")
            os.makedirs(folder, exist_ok=True)
            torch.save({"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                        "step": self.global_step}, os.path.join(folder, "state.pt"))
        dist.barrier()

    def _load_checkpoint(self, folder):
        log.info("resuming from %s", folder)
        state = torch.load(os.path.join(folder, "state.pt"), weights_only=True)
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.global_step = state["step"]
        for _ in range(self.global_step):
            self.data.next_batch()
        dist.barrier()


def run_worker(rank, world_size, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    os.makedirs(args.output_dir, exist_ok=True)

    trainer = Trainer(Classifier(), args, rank, world_size)
    last_checkpoint = get_last_checkpoint(args.output_dir)
    finished = trainer.train(resume_from_checkpoint=last_checkpoint)
    dist.destroy_process_group()
    sys.exit(0 if finished else 75)
