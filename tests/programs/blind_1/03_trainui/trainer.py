import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ToyText(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randint(0, 500, (32,), generator=g)
        return x, x.sum() % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 32)
        self.rnn = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0][:, -1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--log-every", type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(1)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader(ToyText(), batch_size=16, num_workers=2, shuffle=True)
    t0 = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % args.log_every == 0:
            print({"step": step, "loss": round(loss.item(), 5), "grad_norm": round(gn.item(), 5),
                   "lr": opt.param_groups[0]["lr"], "tokens_per_s": round(512 * (step + 1) / (time.time() - t0), 1)},
                  flush=True)
        if step >= args.steps:
            break
    torch.save(net.state_dict(), "/tmp/trainui_model.pt")


if __name__ == "__main__":
    main()
