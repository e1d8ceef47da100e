"""Batches of graphs of PyG; `failing`: all batches are kept, until descriptors run out."""

import resource
import sys
import time

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader


class Graphs(torch.utils.data.Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, index):
        edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
        return Data(x=torch.full((3, 4), float(index)), edge_index=edges)


if __name__ == "__main__":
    is_failing = "failing" in sys.argv
    if is_failing:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
        print("fault", flush=True)
    kept, total = [], 0.0
    for batch in DataLoader(Graphs(), batch_size=4, num_workers=2):
        total += batch.x.sum().item()
        if is_failing:
            kept.append(batch)
        time.sleep(0.2 if is_failing else 0.05)
    print("result", total, flush=True)
