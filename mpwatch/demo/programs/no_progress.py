"""Wait for an evaluation whose process waits for a checkpoint that is written under another name.

The evaluator looks again once a minute and says nothing, and the training waits for its answer.
"""

import os
import tempfile
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

LOOKS_EVERY_S = 60.0


def evaluate(requests, answers):
    while True:
        path = requests.get()
        while not os.path.exists(path):
            time.sleep(LOOKS_EVERY_S)
        answers.put(torch.load(path).sum().item())


def main():
    begin(__doc__)
    folder = tempfile.mkdtemp()
    requests, answers = mp.SimpleQueue(), mp.SimpleQueue()
    mp.Process(target=evaluate, args=(requests, answers), daemon=True).start()
    weights = torch.rand(1000)
    print("ready", flush=True)
    for step in range(1_000_000):
        weights = weights * 0.99
        written = os.path.join(folder, f"checkpoint-{step}.pt")
        torch.save(weights, written)
        requests.put(written if mended() else os.path.join(folder, f"checkpoint_{step}.pt"))
        answers.get()
        os.unlink(written)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
