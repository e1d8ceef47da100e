import random
import sys
import time

sys.setrecursionlimit(10 ** 7)  # long lines are nested deeply


class Node:
    __slots__ = ("move", "visits", "value", "children")

    def __init__(self, move):
        self.move, self.visits, self.value, self.children = move, 0, 0.0, []


class Search:
    """Principal variation search; the tree of a game is returned for inspection."""

    def __init__(self, seed, max_line):
        self.rng = random.Random(seed)
        self.max_line = max_line

    def play(self):
        root = node = Node(0)
        for depth in range(self.max_line):
            child = Node(self.rng.randrange(1968))
            child.visits, child.value = self.rng.randrange(800), self.rng.random()
            node.children.append(child)
            node = child
        time.sleep(0.8)
        return root


def line_length(root):
    n = 0
    while root.children:
        root, n = root.children[0], n + 1
    return n


def self_play(idx, games):
    s, n = Search(idx, 40), 0
    while True:
        n += 1
        if idx == 1 and n == 5:
            s.max_line = 400_000  # no fifty-move rule in endgame studies
        games.put((idx, n, s.play()))
