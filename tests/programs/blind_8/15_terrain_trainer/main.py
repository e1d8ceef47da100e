import argparse
import logging

log = logging.getLogger("terrain")


class Normalizer:
    def __init__(self, mean, std):
        self.mean = mean
        self.std = std

    def __call__(self, x):
        return (x - self.mean) / self.std


def train(args):
    import torch

    from terrain.statistics import MEAN, STD
    from terrain.tiles import load_tile

    normalize = Normalizer(MEAN, STD)
    net = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 256))
    opt = torch.optim.Adam(net.parameters())
    for step in range(args.steps):
        x = torch.from_numpy(normalize(load_tile(step))).float()
        loss = (net(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            log.info("step %d loss %.4f", step, loss.item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=5000)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log.info("preparing")
    train(args)


if __name__ == "__main__":
    main()
