"""Background negative sampling for sequential recommendation."""
import multiprocessing as mp

import numpy as np


def random_neq(rng, low, high, seen):
    item = int(rng.integers(low, high))
    while item in seen:
        item = int(rng.integers(low, high))
    return item


def sample_function(histories, usernum, itemnum, batch_size, maxlen, result_queue, seed):
    rng = np.random.default_rng(seed)

    def sample():
        user = int(rng.integers(1, usernum + 1))
        while len(histories[user]) <= 1:
            user = int(rng.integers(1, usernum + 1))
        history = histories[user]
        seq, pos, neg = (np.zeros(maxlen, dtype=np.int64) for _ in range(3))
        nxt, at = history[-1], maxlen - 1
        seen = set(history)
        for item in reversed(history[:-1]):
            seq[at], pos[at] = item, nxt
            neg[at] = random_neq(rng, 1, itemnum + 1, seen)
            nxt = item
            at -= 1
            if at == -1:
                break
        return user, seq, pos, neg

    while True:
        batch = [sample() for _ in range(batch_size)]
        result_queue.put(tuple(np.stack(part) for part in zip(*batch)))


class WarpSampler:
    def __init__(self, histories, usernum, itemnum, batch_size, maxlen, n_workers):
        ctx = mp.get_context("fork")
        self.result_queue = ctx.Queue(maxsize=n_workers * 4)
        self.processors = []
        for i in range(n_workers):
            proc = ctx.Process(target=sample_function, name=f"sampler-{i}", daemon=True,
                               args=(histories, usernum, itemnum, batch_size, maxlen,
                                     self.result_queue, 2024 + i))
            proc.start()
            self.processors.append(proc)

    def next_batch(self):
        return self.result_queue.get()

    def close(self):
        for proc in self.processors:
            proc.terminate()
            proc.join()
