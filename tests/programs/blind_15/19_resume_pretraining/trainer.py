import os

import torch
import torch.distributed as dist
from torch import nn

from callbacks import EvaluateCallback, GlobalStateCallback, LoggingCallback, TrainerState


class CharModel(nn.Module):
    def __init__(self, vocab=128, dim=96, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.blocks(self.emb(x), mask=mask, is_causal=True))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.model = CharModel()
        if args.load_path and os.path.exists(os.path.join(args.load_path, "model.pt")):
            self.model.load_state_dict(torch.load(os.path.join(args.load_path, "model.pt")))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.loss_fn = nn.CrossEntropyLoss()
        self.state = TrainerState()
        self.callbacks = [GlobalStateCallback(self, self.rank), LoggingCallback(self), EvaluateCallback(self)]

    def batch(self, step, split="train"):
        seed = hash((split == "train", step, self.rank)) % (1 << 31)
        g = torch.Generator().manual_seed(seed)
        start = torch.randint(128, (self.args.micro_batch, 1), generator=g)
        stride = torch.randint(1, 5, (self.args.micro_batch, 1), generator=g)
        seq = (start + stride * torch.arange(self.args.seq_len + 1)) % 128
        return seq[:, :-1], seq[:, 1:]

    def loss(self, step, split="train"):
        x, y = self.batch(step, split)
        return self.loss_fn(self.model(x).flatten(0, 1), y.flatten())

    def train_step(self):
        loss = self.loss(self.state.global_step)
        self.optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.reshape(-1) for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world_size
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        losses = [self.loss(i, "eval") for i in range(self.args.eval_batches)]
        self.model.train()
        return torch.stack(losses).mean()

    def train(self):
        for callback in self.callbacks:
            callback.on_train_begin(self.state)
        while self.state.global_step < self.args.max_steps:
            loss = self.train_step()
            self.state.global_step += 1
            self.state.curr_step += 1
            if self.state.curr_step == self.args.steps_per_epoch:
                self.state.epoch += 1
                self.state.curr_step = 0
            for callback in self.callbacks:
                callback.on_step_end(self.state, loss)
