import argparse, logging, time
from concurrent.futures import ProcessPoolExecutor
import torch

class Policy(torch.nn.Module):
    def __init__(self, use_ln):
        super().__init__()
        dims = [64, 512, 512]
        layers = []
        for a, b in zip(dims, dims[1:]):
            layers += [torch.nn.Linear(a, b)] + ([torch.nn.LayerNorm(b)] if use_ln else []) + [torch.nn.Tanh()]
        self.body = torch.nn.Sequential(*layers, torch.nn.Linear(512, 4))
    def forward(self, x): return self.body(x)

def init_worker(threads):
    torch.set_num_threads(threads)

def rollout(seed):
    torch.manual_seed(seed)
    net, total = Policy(True), 0.0
    with torch.no_grad():
        for _ in range(40):
            total += net(torch.randn(512, 64)).mean().item()
    return total

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--cores", type=int, default=12)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    end = time.time() + 110
    with ProcessPoolExecutor(a.workers, initializer=init_worker, initargs=(a.cores,)) as ex:
        gen = 0
        while time.time() < end:
            scores = list(ex.map(rollout, range(gen * 16, gen * 16 + 16)))
            logging.info("generation %d best %.3f", gen, max(scores))
            gen += 1

if __name__ == "__main__":
    main()
