"""Score a stream of short posts: tokenise, average word vectors, classify, count per topic."""
import argparse
import collections
import multiprocessing as mp
import os
import signal
import sys
import threading
import time

import torch

from feed import PostFeed
from scorer import TopicScorer

TOPICS = ["sport", "music", "news", "games", "travel", "other"]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--scorers", type=int, default=2)
    p.add_argument("--vocabulary", type=int, default=8000)
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--posts-per-second", type=int, default=500)
    p.add_argument("--batch", type=int, default=50)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--run-for", type=float, default=125.0)
    return p.parse_args()


def score_process(index, posts, counts, args):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    scorer = TopicScorer(args.vocabulary, args.dim, len(TOPICS), seed=1)
    while True:
        batch = posts.get()
        if batch is None:
            break
        topics = scorer.score(batch)
        counts.put((index, torch.bincount(topics, minlength=len(TOPICS)).tolist(), len(batch)))


def ingest_process(posts, args, parent):
    """Reads the feed at the pace at which it comes in."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    feed = PostFeed(args.vocabulary, seed=9)
    interval = args.batch / args.posts_per_second
    due = time.monotonic()
    while os.getppid() == parent:
        posts.put(feed.take(args.batch))
        due += interval
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        else:
            due = time.monotonic()


class Board:
    def __init__(self, every):
        self.totals = collections.Counter()
        self.posts = 0
        self.every = every
        self.last = time.monotonic()
        self.last_posts = 0

    def add(self, counts, n):
        for topic, count in zip(TOPICS, counts):
            self.totals[topic] += count
        self.posts += n
        now = time.monotonic()
        if now - self.last > self.every:
            rate = (self.posts - self.last_posts) / (now - self.last)
            shares = " ".join(f"{t} {self.totals[t] / self.posts:.0%}" for t in TOPICS)
            print(f"{time.strftime('%X')} {self.posts} posts, {rate:.0f}/s | {shares}", flush=True)
            self.last, self.last_posts = now, self.posts


def stop_after(seconds):
    time.sleep(seconds + 15)
    os._exit(1)


def main():
    args = parse_args()
    threading.Thread(target=stop_after, args=(args.run_for,), daemon=True).start()
    posts, counts = mp.Queue(maxsize=8), mp.Queue()
    scorers = [mp.Process(target=score_process, args=(i, posts, counts, args), name=f"scorer-{i}", daemon=True)
               for i in range(args.scorers)]
    ingest = mp.Process(target=ingest_process, args=(posts, args, os.getpid()), name="ingest", daemon=True)
    for p in [*scorers, ingest]:
        p.start()

    board = Board(args.report_every)
    end = time.monotonic() + args.run_for
    while time.monotonic() < end:
        _, topic_counts, n = counts.get()
        board.add(topic_counts, n)
    for p in [ingest, *scorers]:
        p.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
