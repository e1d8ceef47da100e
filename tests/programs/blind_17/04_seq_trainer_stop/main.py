"""Trains a sequence model on several workers, for a limited number of hours."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import torch.distributed as dist
import torch.multiprocessing as mp

from tasks import LanguageModelingTask
from trainer import Trainer

log = logging.getLogger("train")


def distributed_init(rank, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)


def train(args, trainer, task):
    """Main training loop; returns when max-update or the time limit is reached."""
    epoch = 1
    while True:
        for samples in task.epoch_batches("train", epoch, args.batch_size):
            stats = trainer.train_step(samples)
            if trainer.num_updates % args.log_interval == 0:
                log.info("epoch %d updates %d loss %.3f gnorm %.3f wall %.0f", epoch, trainer.num_updates,
                         stats["loss"], stats["gnorm"], trainer.cumulative_training_time())
            if args.save_interval_updates and trainer.num_updates % args.save_interval_updates == 0:
                trainer.save_checkpoint(f"checkpoint_{epoch}_{trainer.num_updates}.pt", epoch)
            if trainer.num_updates >= args.max_update:
                log.info("stopping training: num_updates %d >= max_update", trainer.num_updates)
                return epoch
            if trainer.cumulative_training_time() > args.stop_time_hr * 3600:
                log.info("stopping training: %.4f hours exceed --stop-time-hr %.4f at %d updates",
                         trainer.cumulative_training_time() / 3600, args.stop_time_hr, trainer.num_updates)
                return epoch
        epoch += 1


def run(rank, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s | rank {rank} | %(name)s | %(message)s")
    threading.Thread(target=lambda: (time.sleep(args.job_limit), os._exit(0)), daemon=True).start()
    distributed_init(rank, args)
    task = LanguageModelingTask(args, rank)
    if rank == 0:
        task.build_cache()
    dist.barrier()
    task.load_dataset("train")
    task.load_dataset("valid")
    trainer = Trainer(args, rank, task.build_model())
    epoch = train(args, trainer, task)
    loss = trainer.validate(task.epoch_batches("valid", 1, args.batch_size))
    trainer.save_checkpoint("checkpoint_last.pt", epoch, extra={"valid_loss": loss})
    log.info("done training, valid loss %.3f", loss)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--max-update", type=int, default=100000)
    parser.add_argument("--stop-time-hr", type=float, default=0.0015)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    parser.add_argument("--log-interval", type=int, default=5)
    parser.add_argument("--save-interval-updates", type=int, default=0)
    parser.add_argument("--tokens-per-sample", type=int, default=64)
    parser.add_argument("--save-dir", default=None)
    parser.add_argument("--job-limit", type=int, default=115)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.save_dir = args.save_dir or tempfile.mkdtemp(prefix="seqtrain_")
    args.port = free_port()
    mp.spawn(run, args=(args,), nprocs=args.world_size)


if __name__ == "__main__":
    main()
