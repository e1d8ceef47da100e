"""Train with a setting of a debugging session that makes every CUDA call wait.

CUDA reads `CUDA_LAUNCH_BLOCKING` when it is initialised.
"""

import os
import sys
import time

import torch

from mpwatch.demo.bounds import begin, mended

VARIABLE = "CUDA_LAUNCH_BLOCKING"


def main():
    if not mended() and VARIABLE not in os.environ:
        os.environ[VARIABLE] = "1"  # as a line in the script that starts the training does
        os.execv(sys.executable, [sys.executable, *sys.argv])
    until_s = time.monotonic() + begin(__doc__)
    model = torch.nn.Linear(512, 512).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(64, 512, device="cuda")
    print("ready", flush=True)
    while time.monotonic() < until_s:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
