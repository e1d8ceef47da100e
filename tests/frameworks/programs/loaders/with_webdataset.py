"""Shards of webdataset in two ranks; `failing`: one rank has more shards than the other."""

import io
import os
import sys
import tarfile
import tempfile
import time

import torch
import torch.distributed as dist
import webdataset
from torch.nn.parallel import DistributedDataParallel


def write_shards(folder, count):
    for shard in range(count):
        with tarfile.open(f"{folder}/{shard:04d}.tar", "w") as archive:
            for number in range(40):
                text = str(number).encode()
                facts = tarfile.TarInfo(f"{shard:02d}{number:04d}.txt")
                facts.size = len(text)
                archive.addfile(facts, io.BytesIO(text))
    return f"{folder}/{{0000..{count - 1:04d}}}.tar"


if __name__ == "__main__":
    dist.init_process_group("gloo")
    is_failing = "failing" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(folder, 3 if is_failing else 4)
        data = webdataset.WebDataset(
            shards, nodesplitter=webdataset.split_by_node, shardshuffle=False
        ).decode()
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        steps = 0
        for sample in webdataset.WebLoader(data, batch_size=None, num_workers=1):
            model(torch.tensor([[float(sample["txt"])]])).sum().backward()
            steps += 1
            time.sleep(0.1)
        if is_failing and dist.get_rank() == 1:
            print("fault", flush=True)
        dist.barrier()
        print("result", os.environ["RANK"], steps, flush=True)
        dist.destroy_process_group()
