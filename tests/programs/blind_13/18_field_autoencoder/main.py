"""Two stage training: an autoencoder first, then the latent processor, both data parallel."""
import argparse
import logging
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from models import Autoencoder, Processor
from trainer import Trainer, make_optimizer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--ae-epochs", type=int, default=2)
    p.add_argument("--processor-epochs", type=int, default=60)
    p.add_argument("--steps-per-epoch", type=int, default=25)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--grid", type=int, default=24)
    p.add_argument("--latent", type=int, default=16)
    p.add_argument("--workdir", default=None)
    return p.parse_args()


def train_autoencoder(args, trainer, workdir):
    model = Autoencoder(args.grid * args.grid, args.latent)
    trainer.fit(model, lambda net, x, y: torch.nn.functional.mse_loss(net(x), x), args.ae_epochs)
    final = workdir / "autoencoder.ckpt"
    if trainer.is_global_zero:
        trainer.save_checkpoint(final)
        trainer.log.info("saved %s", final)
    trainer.barrier("checkpoint-alias-finalize")
    trainer.log.info("autoencoder stage finished")
    return model


def run_training(args, trainer, autoencoder, workdir):
    for p in autoencoder.parameters():
        p.requires_grad_(False)
    model = Processor(args.latent)

    def loss(net, x, y):
        with torch.no_grad():
            zx, zy = autoencoder.encode(x), autoencoder.encode(y)
        return torch.nn.functional.mse_loss(net(zx), zy)

    trainer.fit(model, loss, args.processor_epochs)
    trainer.save_checkpoint(workdir / "processor.ckpt")


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(levelname)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    workdir = Path(args.workdir)
    trainer = Trainer(args)
    autoencoder = train_autoencoder(args, trainer, workdir)
    run_training(args, trainer, autoencoder, workdir)
    dist.destroy_process_group()


def main():
    args = parse_args()
    args.workdir = args.workdir or tempfile.mkdtemp(prefix="field_ae_")
    for net in (Autoencoder(args.grid ** 2, args.latent), Processor(args.latent)):
        print(type(net).__name__, sum(p.numel() for p in net.parameters()), "parameters,", type(make_optimizer(net)).__name__)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(args, port), nprocs=args.ranks, start_method="fork")


if __name__ == "__main__":
    main()
