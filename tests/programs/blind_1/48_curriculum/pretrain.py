import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from curriculum import LengthCurriculum

log = logging.getLogger("pretrain")


class Tokens(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(get_worker_info().id)
        while True:
            yield torch.randint(0, 300, (256,), generator=g)


class LM(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(300, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, 300)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--tokens-per-s", type=float, default=4000, help="throttle, shared machine")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    cur, net = LengthCurriculum(), LM()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    t0, tokens = time.time(), 0
    for step, x in enumerate(DataLoader(Tokens(), batch_size=8, num_workers=2)):
        n = cur.length(step)
        x = x[:, :n]
        loss = nn.functional.cross_entropy(net(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        tokens += x.numel()
        time.sleep(max(0.0, tokens / args.tokens_per_s - (time.time() - t0)))
        if step % 20 == 0:
            log.info("step %d length %d loss %.3f %.0f tokens/s", step, n, loss.item(), tokens / (time.time() - t0))
        if step >= args.steps:
            break


if __name__ == "__main__":
    main()
