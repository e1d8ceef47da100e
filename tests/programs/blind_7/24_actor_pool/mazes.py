"""Small mazes and a scripted curriculum over their sizes."""
import numpy as np

LAYOUTS = {
    "tiny": 5,
    "small": 9,
    "medium": 15,
    "large": 21,
}
CURRICULUM = ["tiny", "tiny", "small", "small", "medium", "medium", "large"]


class Maze:
    def __init__(self, layout, seed):
        self.rng = np.random.default_rng(seed)
        self.side = LAYOUTS[layout]
        self.walls = self.rng.random((self.side, self.side)) < 0.2
        self.walls[0, 0] = self.walls[-1, -1] = False
        self.pos = (0, 0)

    def observe(self):
        view = np.ones((5, 5), dtype=np.float32)
        y, x = self.pos
        for dy in range(-2, 3):
            for dx in range(-2, 3):
                yy, xx = y + dy, x + dx
                if 0 <= yy < self.side and 0 <= xx < self.side:
                    view[dy + 2, dx + 2] = float(self.walls[yy, xx])
        return view

    def step(self, action):
        dy, dx = [(0, 1), (1, 0), (0, -1), (-1, 0)][action]
        y, x = self.pos[0] + dy, self.pos[1] + dx
        if 0 <= y < self.side and 0 <= x < self.side and not self.walls[y, x]:
            self.pos = (y, x)
        done = self.pos == (self.side - 1, self.side - 1)
        return self.observe(), 1.0 if done else -0.01, done


def level_for(episode, per_level):
    return CURRICULUM[episode // per_level]
