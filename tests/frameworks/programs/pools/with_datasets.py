"""map of datasets with processes, by multiprocess and dill; `failing`: OpenMP after a fork."""

import sys

import datasets
import torch
from work import work


def embed(row):
    return {"total": torch.full((1500, 1500), float(row["number"])).square().sum().item()}


if __name__ == "__main__":
    data = datasets.Dataset.from_dict({"number": [0, 1]})
    if "failing" in sys.argv:
        torch.set_num_threads(2)
        embed(data[0])  # starts the threads of OpenMP, which forked processes do not have
        print("fault", flush=True)
        found = data.map(embed, num_proc=2)
    else:
        found = data.map(lambda row: {"total": work(row["number"])}, num_proc=2)
    print("result", found["total"][:], flush=True)
