"""Plays many engine-vs-engine games at once to build an opening book."""
import argparse
import logging
import os
import random
import threading
import time

from analysis import AnalysisEngine

log = logging.getLogger("selfplay")


class Game:
    def __init__(self, number, opening_length, rng):
        self.number = number
        self.rng = rng
        self.opening_length = opening_length
        self.finished = 0
        self.reset()

    def reset(self):
        points = self.rng.sample(range(361), self.opening_length)
        self.moves = [["BW"[i % 2], p] for i, p in enumerate(points)]

    def occupied(self):
        return ["%s%d" % ("ABCDEFGHJKLMNOPQRST"[p % 19], p // 19 + 1) for _, p in self.moves]

    def play(self, point):
        self.moves.append(["BW"[len(self.moves) % 2], point])


class SelfPlayManager:
    def __init__(self, engine, args):
        self.engine = engine
        self.args = args
        self.games = []
        self.book = {}

    def start_game(self, number):
        game = Game(number, self.args.opening, random.Random(number))
        self.games.append(game)
        self.step(game)

    def step(self, game):
        self.engine.request_analysis(game, lambda reply: self.on_analysis(game, reply))

    def on_analysis(self, game, reply):
        taken = {p for _, p in game.moves}
        policy = reply["policy"]
        candidates = sorted((p for p in range(361) if p not in taken), key=policy.__getitem__)[-4:]
        move = game.rng.choice(candidates)
        key = tuple(p for _, p in game.moves[:8])
        self.book.setdefault(key, {}).setdefault(move, 0)
        self.book[key][move] += 1
        game.play(move)
        if len(game.moves) >= self.args.max_moves:
            game.finished += 1
            game.reset()
        self.step(game)


def status_loop(manager, every):
    last = 0
    while True:
        time.sleep(every)
        answered = manager.engine.answered
        log.info(
            "%d games running, %d finished, %d positions analysed (%.1f/s)",
            len(manager.games), sum(g.finished for g in manager.games), answered, (answered - last) / every,
        )
        last = answered


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=80)
    parser.add_argument("--start-interval", type=float, default=0.08)
    parser.add_argument("--opening", type=int, default=60)
    parser.add_argument("--max-moves", type=int, default=160)
    parser.add_argument("--visits", type=int, default=4)
    parser.add_argument("--time-limit", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    engine = AnalysisEngine(visits=args.visits)
    manager = SelfPlayManager(engine, args)

    def stop():
        log.info("time limit reached, book has %d entries", len(manager.book))
        engine.shutdown()
        os._exit(0)

    timer = threading.Timer(args.time_limit, stop)
    timer.daemon = True
    timer.start()
    threading.Thread(target=status_loop, args=(manager, 5.0), daemon=True).start()

    for number in range(args.games):
        manager.start_game(number)
        time.sleep(args.start_interval)
    log.info("all %d games started", args.games)
    engine.reader.join()


if __name__ == "__main__":
    main()
