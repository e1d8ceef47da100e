import random
import time

import numpy as np

SIZE = 19


class Game:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.noise = np.random.default_rng(seed)
        self.root = self.rng.getrandbits(64)
        self.board = np.zeros((3, SIZE, SIZE), dtype=np.uint8)
        self.moves = 0

    def leaves(self, count):
        """Positions below the root: a few are reached again and again."""
        for _ in range(count):
            if self.rng.random() < 0.2:
                key = (self.root, self.rng.randrange(40))
            else:
                key = (self.root, self.rng.getrandbits(48))
            planes = self.board.copy()
            planes[0].flat[key[1] % (SIZE * SIZE)] = 1
            planes[2] = self.noise.integers(0, 2, (SIZE, SIZE), dtype=np.uint8)
            yield key, planes

    def play(self, point):
        self.board[self.moves % 2].flat[point] = 1
        self.moves += 1
        self.root = hash((self.root, point))


def search_process(number, link, args):
    """Plays games by asking the evaluator; visits are throttled so that the machine stays usable."""
    end = time.monotonic() + args.seconds
    game = Game(seed=number)
    period = args.batch / args.visits_per_second
    due = time.monotonic()
    while time.monotonic() < end:
        best = (-2.0, 0)
        for _ in range(args.visits // args.batch):
            link.send(list(game.leaves(args.batch)))
            answers = link.recv()
            best = max([best] + [(value, point) for point, value in answers.values()])
            due = max(due + period, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
        game.play(best[1])
        link.send(("move", number, game.moves, best))
        if game.moves >= 250:
            game = Game(seed=game.rng.random())
    link.send(None)
