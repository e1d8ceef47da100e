import multiprocessing as mp
import random
from collections import defaultdict


class IndexBuilder(mp.Process):
    def __init__(self, progress):
        super().__init__(name="index-builder", daemon=True)
        self.progress = progress

    def run(self):
        rng = random.Random(1)
        postings = defaultdict(int)
        while True:
            for _ in range(400):
                postings[rng.randint(0, 20000)] += 1
            self.progress.value += 1
