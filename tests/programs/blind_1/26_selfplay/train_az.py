import argparse
import logging
import multiprocessing as mp
import queue

import torch
from torch import nn

from search import line_length, self_play

log = logging.getLogger("az")


class PolicyValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(1968, 32)
        self.v = nn.Linear(32, 1)

    def forward(self, moves):
        return self.v(self.emb(moves).mean(0))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--players", type=int, default=3)
    ap.add_argument("--games", type=int, default=2000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    games = mp.Queue(maxsize=32)
    for i in range(args.players):
        mp.Process(target=self_play, args=(i, games), name=f"selfplay-{i}", daemon=True).start()
    net = PolicyValue()
    opt = torch.optim.Adam(net.parameters())
    for g in range(args.games):
        try:
            idx, n, root = games.get(timeout=30)
        except queue.Empty:
            log.info("no game for 30s")
            continue
        moves, node = [], root
        while node.children:
            node = node.children[0]
            moves.append(node.move)
        loss = (net(torch.tensor(moves)) - node.value).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if g % 5 == 0:
            log.info("game %d from player %d (#%d), %d plies, loss %.3f", g, idx, n, line_length(root), loss.item())


if __name__ == "__main__":
    main()
