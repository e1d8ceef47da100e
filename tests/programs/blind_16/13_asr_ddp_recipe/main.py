import argparse
import functools
import logging
import os
import socket
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from brain import Brain, Stage, if_main_process
from epoch_loop import EpochCounterWithStopper

logger = logging.getLogger("recipe")


def parse_args():
    p = argparse.ArgumentParser(description="small CTC phone recogniser, DDP recipe")
    p.add_argument("--nproc", type=int, default=2)
    p.add_argument("--number-of-epochs", type=int, default=400)
    p.add_argument("--limit-to-stop", type=int, default=3)
    p.add_argument("--limit-warmup", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--batches", type=int, default=12)
    p.add_argument("--save-folder", default=None)
    return p.parse_args()


class PhoneModel(nn.Module):
    def __init__(self, feats=40, phones=40):
        super().__init__()
        self.rnn = nn.GRU(feats, 96, batch_first=True)
        self.out = nn.Linear(96, phones + 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).log_softmax(-1)


class ASR(Brain):
    def compute_forward(self, batch, stage):
        return self.module(batch["feats"])

    def compute_objectives(self, logp, batch, stage):
        lens = torch.full((logp.shape[0],), logp.shape[1])
        return nn.functional.ctc_loss(logp.transpose(0, 1), batch["phones"], lens,
                                      torch.full_like(lens, batch["phones"].shape[1]), blank=40)

    def on_stage_end(self, stage, loss, epoch):
        if stage == Stage.TRAIN:
            self.train_loss = loss
        elif stage == Stage.VALID:
            logger.info("epoch: %d - train loss: %.3f - valid loss: %.3f", epoch, self.train_loss, loss)
            if loss < self.hparams["counter"].best_score:
                torch.save(self.module.module.state_dict(), self.hparams["ckpt"])
            self.hparams["counter"].update_metric(loss)
        elif stage == Stage.TEST:
            logger.info("test loss: %.3f", loss)

    def on_evaluate_start(self):
        self.module.module.load_state_dict(torch.load(self.hparams["ckpt"]))


def make_batches(count, seed, size=8):
    g = torch.Generator().manual_seed(seed)
    return [{"feats": torch.randn(size, 50, 40, generator=g),
             "phones": torch.randint(0, 40, (size, 12), generator=g)} for _ in range(count)]


def run(rank, port, folder, args):
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING,
                        format="%(asctime)s %(name)s - %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(1986)
    dist.init_process_group("gloo", rank=rank, world_size=args.nproc, timeout=timedelta(hours=1))
    counter = EpochCounterWithStopper(args.number_of_epochs, args.limit_to_stop, args.limit_warmup)
    brain = ASR(PhoneModel(), functools.partial(torch.optim.Adam, lr=args.lr),
                {"counter": counter, "ckpt": os.path.join(folder, "model.ckpt")})
    brain.fit(counter, make_batches(args.batches, seed=100 + rank), make_batches(4, seed=7))
    brain.evaluate(make_batches(6, seed=8))
    if if_main_process():
        logger.info("done, results in %s", folder)
    dist.destroy_process_group()


def main():
    args = parse_args()
    folder = args.save_folder or tempfile.mkdtemp(prefix="asr_recipe_")
    mp.spawn(run, args=(free_port(), folder, args), nprocs=args.nproc)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    main()
