"""Data-parallel training of a relation scorer; unusable batches are skipped at run time."""
import argparse
import logging
import multiprocessing as mp
import os
import socket

from trainer import Config, run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(rank, world, port, cfg):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    run(cfg)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-processes", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batches-per-epoch", type=int, default=30)
    parser.add_argument("--max-bad-batches", type=int, default=4)
    args = parser.parse_args()
    cfg = Config(epochs=args.epochs, batches_per_epoch=args.batches_per_epoch,
                 max_bad_batches=args.max_bad_batches)
    port = free_port()
    ctx = mp.get_context("fork")
    procs = [ctx.Process(target=launch, args=(r, args.num_processes, port, cfg), name=f"rank{r}")
             for r in range(args.num_processes)]
    for p in procs:
        p.start()
    for p in procs:
        p.join()


if __name__ == "__main__":
    main()
