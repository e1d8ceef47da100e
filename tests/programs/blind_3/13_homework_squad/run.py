import argparse
import logging
import time

import torch
from torch.utils.data import DataLoader, Dataset

from qa_model import SpanModel

torch.set_num_threads(1)
log = logging.getLogger("hw7")


class QADataset(Dataset):
    def __init__(self, n=200000, length=128):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(0, 2000, (self.length,), generator=g)
        return ids, int(ids[0]) % self.length, int(ids[1]) % self.length


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--logging-step", type=int, default=10)
    ap.add_argument("--max-time", type=float, default=75)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    loader = DataLoader(QADataset(), batch_size=args.batch_size, shuffle=True, num_workers=1)
    model = SpanModel()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    begin = time.time()
    train_loss, step = 0, 0
    for ids, start, end in loader:
        loss = model(ids, start, end)
        train_loss += loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        step += 1
        if step % args.logging_step == 0:
            log.info("step %d mean loss %.4f", step, float(train_loss) / step)
        time.sleep(0.02)
        if time.time() - begin > args.max_time:
            break


if __name__ == "__main__":
    main()
