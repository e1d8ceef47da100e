"""joblib's default backend; `failing`: its forked processes use OpenMP after the main process."""

import sys

import torch
from joblib import Parallel, delayed
from work import work


def norm(number):
    return torch.full((1500, 1500), float(number)).square().sum().item()


if __name__ == "__main__":
    if "failing" in sys.argv:
        torch.set_num_threads(2)
        norm(1)  # starts the threads of OpenMP, which forked processes do not have
        print("fault", flush=True)
        Parallel(n_jobs=2, backend="multiprocessing")(delayed(norm)(number) for number in range(4))
    print("result", Parallel(n_jobs=2)(delayed(work)(number) for number in range(4)), flush=True)
