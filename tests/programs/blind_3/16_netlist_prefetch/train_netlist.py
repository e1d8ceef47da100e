import argparse
import logging
import time

import numpy as np

from prefetch import BackgroundGenerator

log = logging.getLogger("netlist")


class NetlistGraphs:
    def __init__(self, n_graphs=40, nodes=2000):
        self.n_graphs, self.nodes = n_graphs, nodes

    def __iter__(self):
        for i in range(self.n_graphs):
            rng = np.random.default_rng(i)
            yield rng.normal(size=(self.nodes, 16)).astype(np.float32), rng.integers(0, self.nodes, (2, 4 * self.nodes))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.w = np.zeros((16, 1), dtype=np.float32)
        self.graphs = NetlistGraphs()

    def step(self, x, edges):
        agg = np.zeros_like(x)
        np.add.at(agg, edges[0, :500], x[edges[1, :500]])
        pred = agg @ self.w
        grad = agg.T @ (pred - x[:, :1]) / len(x)
        self.w -= 0.01 * grad
        return float((pred ** 2).mean())

    def train_iters(self):
        losses = []
        for i, (x, edges) in enumerate(BackgroundGenerator(iter(self.graphs))):
            losses.append(self.step(x, edges))
            if i + 1 >= self.args.iters_per_eval:
                break
        return np.mean(losses)

    def run(self):
        start, it = time.time(), 0
        while time.time() - start < self.args.max_time:
            loss = self.train_iters()
            it += 1
            if it % 5 == 0:
                log.info("Iters[%d] Train Loss %.4f", it, loss)
            time.sleep(0.3)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters-per-eval", type=int, default=8)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Trainer(args).run()


if __name__ == "__main__":
    main()
