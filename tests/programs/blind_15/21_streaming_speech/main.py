"""Train a pitch estimator on a streamed corpus with several processes."""
import argparse
import logging
import shutil
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader

from audio import extract_features, read_shard, write_shards
from iterable_dataset import StreamingDataset, split_dataset_by_node


class PitchNet(nn.Module):
    def __init__(self, n_bands=32, width=48):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(n_bands, width, 5, stride=2), nn.ReLU(),
                                  nn.Conv1d(width, width, 5, stride=2), nn.ReLU())
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.conv(x.transpose(1, 2)).mean(2)).squeeze(1)


def train(rank, args, port, shards):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("train")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    dataset = StreamingDataset.from_generator(read_shard, shards).map(extract_features)
    dataset = split_dataset_by_node(dataset, rank, args.world_size)
    loader = DataLoader(dataset, batch_size=args.batch_size, num_workers=args.num_workers, drop_last=True,
                        prefetch_factor=4 if args.num_workers else None)
    model = nn.parallel.DistributedDataParallel(PitchNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        seen, step, waited, t0 = 0, 0, 0.0, time.time()
        t_data = time.time()
        for batch in loader:
            waited += time.time() - t_data
            loss = nn.functional.mse_loss(model(batch["features"]), batch["f0"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            seen += len(batch["f0"])
            if rank == 0 and step % args.log_every == 0:
                log.info("epoch %d step %d loss %.4f: %.1f utterances/s, %.0f%% of the time waiting for data",
                         epoch, step, loss.item(), seen * args.world_size / (time.time() - t0),
                         100 * waited / (time.time() - t0))
            t_data = time.time()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--n-shards", type=int, default=8)
    p.add_argument("--per-shard", type=int, default=150)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--num-workers", type=int, default=1)
    p.add_argument("--epochs", type=int, default=400)
    p.add_argument("--log-every", type=int, default=5)
    args = p.parse_args()
    folder = tempfile.mkdtemp(prefix="corpus_")
    try:
        shards = write_shards(folder, args.n_shards, args.per_shard)
        port = free_port()
        context = mp.get_context("fork")
        others = [context.Process(target=train, args=(rank, args, port, shards))
                  for rank in range(1, args.world_size)]
        for process in others:
            process.start()
        train(0, args, port, shards)
        for process in others:
            process.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
