"""Self-play for gomoku: two players' processes produce games, the learner fits the network."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import time
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F

from gomoku import Gomoku, PolicyValueNet
from mcts import MCTS

log = logging.getLogger("coach")


def play_episode(game, mcts, args, rng):
    board, player, step, examples = game.initial(), 1, 0, []
    while True:
        tick = time.time()
        step += 1
        pi = mcts.get_action_prob(board, temp=1.0 if step < args.temp_threshold else 0)
        examples.append((board.astype(np.int8), pi.astype(np.float32), player))
        action = int(rng.choice(game.actions, p=pi))
        board = game.next_canonical(board, action)
        player = -player
        result = game.ended(board)
        # games are shown live on the club page, one move per interval
        time.sleep(max(0.0, args.move_interval - (time.time() - tick)))
        if result != 0 or step >= args.max_moves:
            return [(b, p, result if pl == player else -result) for b, p, pl in examples]


def self_play(number, args, out):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    rng = np.random.default_rng(number)
    game = Gomoku(args.board)
    mcts = MCTS(game, PolicyValueNet(game, seed=0), args)
    episode, started = 0, time.time()
    while time.time() - started < args.max_seconds + 5:
        examples = play_episode(game, mcts, args, rng)
        episode += 1
        log.info("episode %d: %d moves", episode, len(examples))
        out.put(examples)


class Coach:
    def __init__(self, args):
        self.game = Gomoku(args.board)
        self.net = PolicyValueNet(self.game, seed=0)
        self.history = deque(maxlen=args.history)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def learn(self, batch_size=64):
        n = len(self.history)
        picks = np.random.randint(0, n, min(batch_size, n))
        b, p, v = zip(*(self.history[i] for i in picks))
        x = torch.from_numpy(np.stack(b)).float().flatten(1)
        h = self.net.body(x)
        loss = -(torch.from_numpy(np.stack(p)) * F.log_softmax(self.net.pi(h), 1)).sum(1).mean()
        loss = loss + F.mse_loss(torch.tanh(self.net.v(h))[:, 0], torch.tensor(v).float())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return float(loss.detach())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--board", type=int, default=19)
    p.add_argument("--players", type=int, default=2)
    p.add_argument("--sims", type=int, default=110)
    p.add_argument("--cpuct", type=float, default=3.0)
    p.add_argument("--max-depth", type=int, default=60)
    p.add_argument("--max-moves", type=int, default=30)
    p.add_argument("--temp-threshold", type=int, default=20)
    p.add_argument("--move-interval", type=float, default=0.4)
    p.add_argument("--history", type=int, default=2000)
    p.add_argument("--max-seconds", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)

    out = mp.Queue()
    players = [mp.Process(target=self_play, args=(i, args, out), name="player-%d" % i, daemon=True)
               for i in range(args.players)]
    for pr in players:
        pr.start()
    coach, started = Coach(args), time.time()
    while time.time() - started < args.max_seconds:
        try:
            coach.history.extend(out.get(timeout=1.0))
        except queue.Empty:
            continue
        loss = coach.learn()
        log.info("%d examples in history (at most %d), loss %.3f", len(coach.history), args.history, loss)
    for pr in players:
        pr.kill()
    log.info("run over")
    os._exit(0)


if __name__ == "__main__":
    main()
