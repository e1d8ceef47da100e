"""Scoring service: takes batches of captions from the trainer and scores them in threads."""
import logging
import queue
import threading

from metrics import Bleu, Meteor, RougeL

log = logging.getLogger("scorer")


class Scorer:
    def __init__(self, threads):
        self.metrics = {"bleu4": Bleu(), "rouge_l": RougeL(), "meteor": Meteor()}
        self.tasks = queue.Queue()
        self.threads = [threading.Thread(target=self.loop, args=(i,), name=f"score-{i}", daemon=True)
                        for i in range(threads)]

    def start(self):
        for t in self.threads:
            t.start()

    def loop(self, index):
        while True:
            done, ref, hyp = self.tasks.get()
            scores = {}
            for name, metric in self.metrics.items():
                try:
                    scores[name] = metric.compute_score(ref, hyp)
                except Exception as exc:
                    log.warning("%s failed for %r: %s", name, hyp, exc)
                    scores[name] = 0.0
            done.put(scores)

    def score_batch(self, pairs):
        done = queue.Queue()
        for ref, hyp in pairs:
            self.tasks.put((done, ref, hyp))
        return [done.get() for _ in pairs]


def serve(conn, threads):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    scorer = Scorer(threads)
    scorer.start()
    while True:
        try:
            pairs = conn.recv()
        except EOFError:
            break
        conn.send(scorer.score_batch(pairs))
