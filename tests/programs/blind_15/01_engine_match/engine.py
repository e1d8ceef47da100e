"""A toy value-network engine."""
import random
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)


class ValueNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, width), nn.ReLU(),
                                  nn.Linear(width, width), nn.ReLU(),
                                  nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x)


class Engine:
    def __init__(self):
        torch.manual_seed(1)
        self.net = ValueNet().eval()
        self.rng = random.Random(7)

    @torch.no_grad()
    def search(self, deadline):
        best, value, nodes = "a1a2", 0.0, 0
        while time.time() < deadline:
            x = torch.randn(32, 64)
            v = self.net(x).squeeze(1)
            nodes += 32
            value = float(v.max()) * 4 + self.rng.uniform(-1, 1)
            i = int(v.argmax())
            best = "%s%d%s%d" % ("abcdefgh"[i % 8], i % 8 + 1, "abcdefgh"[i % 5], i % 7 + 1)
        return best, value, nodes

    def bench(self, depth):
        t0, nodes = time.time(), 0
        for _ in range(depth):
            _, _, n = self.search(time.time() + 0.3)
            nodes += n
        dt = time.time() - t0
        print("Nodes searched  : %d" % nodes)
        print("Nodes/second    : %d" % int(nodes / dt))

    def loop(self):
        for line in sys.stdin:
            cmd = line.split()
            if not cmd:
                continue
            if cmd[0] == "uci":
                print("id name ToyNet 0.3")
                print("uciok", flush=True)
            elif cmd[0] == "isready":
                print("readyok", flush=True)
            elif cmd[0] == "go":
                best, value, _ = self.search(time.time() + int(cmd[2]) / 1000)
                print("info depth 1 score %.3f" % value)
                print("bestmove %s" % best, flush=True)
            elif cmd[0] == "quit":
                return


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "bench":
        Engine().bench(int(sys.argv[2]))
    else:
        Engine().loop()
