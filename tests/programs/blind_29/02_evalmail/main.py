import argparse
import logging
import multiprocessing as mp
import os
import tempfile

import torch

from evaluator import run_evaluator
from mailbox import Mailbox
from model import Classifier, make_images

log = logging.getLogger("train")


class Trainer:
    def __init__(self, args, requests, replies, workdir):
        self.args, self.requests, self.replies, self.workdir = args, requests, replies, workdir
        self.model = Classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.generator = torch.Generator().manual_seed(args.seed)
        self.pending = None
        self.best = 0.0

    def train_step(self):
        images, labels = make_images(self.args.batch_size, self.generator)
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def collect(self):
        step, accuracy = self.replies.get()
        self.pending = None
        if accuracy > self.best:
            self.best = accuracy
            torch.save(self.model.state_dict(), os.path.join(self.workdir, "best.pt"))
        log.info("validation of step %d: %.4f (best %.4f)", step, accuracy, self.best)

    def submit(self, step):
        path = os.path.join(self.workdir, f"step_{step}.pt")
        torch.save(self.model.state_dict(), path)
        self.requests.put((step, path))
        self.pending = step

    def fit(self):
        for step in range(1, self.args.steps + 1):
            loss = self.train_step()
            if step % self.args.eval_every == 0:
                log.info("step %d loss %.4f", step, loss)
                if self.pending is not None:
                    self.collect()
                self.submit(step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--eval-every", type=int, default=15)
    parser.add_argument("--eval-images", type=int, default=896)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with mp.Manager() as manager, tempfile.TemporaryDirectory() as workdir:
        requests, replies = Mailbox(manager, "requests"), Mailbox(manager, "replies")
        worker = mp.Process(target=run_evaluator, args=(requests, replies, args.eval_images, args.seed),
                            name="evaluator", daemon=True)
        worker.start()
        Trainer(args, requests, replies, workdir).fit()
        requests.close()
        worker.join()


if __name__ == "__main__":
    main()
