"""Learn from the steps of two actors, which are far slower than the learner.

The learner takes milliseconds for a step, and an actor a tenth of a second: the learner waits for
its queue nearly all the time.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

ACTORS = 2
RENDER_S = 0.1
MENDED_S = 0.025  # two of them keep up with a learner that takes four steps in 0.05 s


def act(steps, seed):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    while True:
        time.sleep(MENDED_S if mended() else RENDER_S)  # the simulator renders a picture
        steps.put(torch.randn(64, generator=generator).tolist())


def learn(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(torch.tensor(batch)).square().mean()
    loss.backward()
    optimizer.step()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    torch.set_num_threads(1)
    steps = mp.Queue(maxsize=8)
    for seed in range(ACTORS):
        mp.Process(target=act, args=(steps, seed), daemon=True).start()
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    learn(model, optimizer, [steps.get()])
    print("ready", flush=True)
    while time.monotonic() < until_s:
        learn(model, optimizer, [steps.get() for _ in range(4)])
        if mended():
            time.sleep(0.05)  # a larger model


if __name__ == "__main__":
    main()
