import argparse
import logging
import random
import time

import torch.multiprocessing as mp

from engine import engine_process

log = logging.getLogger("gateway")


class Conversation:
    """Chats that are served in one batch; their context grows with every turn."""

    def __init__(self, rng, rows, max_len, vocab=16384):
        self.rng, self.rows, self.max_len, self.vocab = rng, rows, max_len, vocab
        self.length = 0
        self.last = [1] * rows

    def next_turn(self):
        user = [[self.rng.randrange(self.vocab) for _ in range(self.rows)] for _ in range(self.rng.randint(1, 2))]
        fed = [self.last] + user
        count = self.rng.randint(1, 3)
        start = self.length
        if start + len(fed) + count > self.max_len:
            return None
        self.length = start + len(fed) + count - 1
        return start, fed, count


class Gateway:
    def __init__(self, args, requests, replies):
        self.args, self.requests, self.replies = args, requests, replies
        self.rng = random.Random(args.seed)
        self.active = {}
        self.finished = 0

    def pick(self):
        rows = self.rng.choice(self.args.row_buckets)
        if rows not in self.active:
            self.active[rows] = Conversation(self.rng, rows, self.args.max_len)
        return self.active[rows]

    def serve(self):
        waits = []
        while True:
            conversation = self.pick()
            turn = conversation.next_turn()
            if turn is None:
                del self.active[conversation.rows]
                self.finished += 1
                continue
            began = time.time()
            self.requests.put(turn)
            produced = self.replies.get()
            waits.append(time.time() - began)
            conversation.last = [row[-1] for row in produced]
            if len(waits) % 20 == 0:
                recent = sorted(waits[-20:])
                log.info("%d turns, %d conversations ended, median reply %.0f ms", len(waits), self.finished,
                         1000 * recent[10])
            time.sleep(self.rng.expovariate(1 / self.args.think_time))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--row-buckets", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--max-len", type=int, default=1024)
    parser.add_argument("--think-time", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [gateway] %(message)s")
    ctx = mp.get_context("spawn")
    requests, replies, ready = ctx.Queue(), ctx.Queue(), ctx.Event()
    engine = ctx.Process(target=engine_process, args=(args, requests, replies, ready), name="engine", daemon=True)
    engine.start()
    ready.wait()
    Gateway(args, requests, replies).serve()


if __name__ == "__main__":
    main()
