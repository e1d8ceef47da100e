"""Retrieval evaluation: every question against the index, evidence metrics, several settings of k."""
import argparse
import csv
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from corpus import VectorIndex, build_chunks, build_questions
from metrics import evidence_recall, full_chain, reciprocal_rank, resolve_gold

log = logging.getLogger("rag-eval")


class Retriever:
    def __init__(self, chunks):
        self.chunks = chunks
        self.index = VectorIndex(len(chunks))

    def retrieve(self, question, k):
        hits = self.index.search(question, k * 4)
        seen, kept = set(), []
        for chunk_id in hits:
            head = self.chunks[chunk_id].text[:40]
            if head not in seen:
                seen.add(head)
                kept.append(chunk_id)
        return kept[:k]


_retriever = None


def init_worker(time_limit):
    torch.set_num_threads(1)
    expire_after(time_limit)


def evaluate_question(question, k):
    started = time.perf_counter()
    retrieved = _retriever.retrieve(question, k)
    gold = resolve_gold(question.quotes, _retriever.chunks)
    return {
        "question": question.id, "k": k,
        "recall": evidence_recall(retrieved, gold),
        "chain": full_chain(retrieved, gold),
        "mrr": reciprocal_rank(retrieved, gold),
        "seconds": time.perf_counter() - started,
    }


class ResultTable:
    FIELDS = ["question", "k", "recall", "chain", "mrr", "seconds"]

    def __init__(self, path):
        self.handle = open(path, "w", newline="", buffering=1)
        self.writer = csv.DictWriter(self.handle, self.FIELDS)
        self.writer.writeheader()
        self.rows = []

    def add(self, row):
        self.rows.append(row)
        self.writer.writerow(row)

    def mean(self, name):
        return sum(r[name] for r in self.rows) / max(1, len(self.rows))


def expire_after(seconds):
    def expire():
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


def sweep(executor, questions, ks, table, log_every):
    started = time.time()
    pending = [executor.submit(evaluate_question, q, k) for k in ks for q in questions]
    log.info("%d evaluations submitted", len(pending))
    for future in as_completed(pending):
        table.add(future.result())
        if len(table.rows) % log_every == 0:
            rate = len(table.rows) / (time.time() - started)
            log.info("%d/%d (%.2f/s) recall %.3f mrr %.3f, eta %.0f s", len(table.rows), len(pending), rate,
                     table.mean("recall"), table.mean("mrr"), (len(pending) - len(table.rows)) / rate)


def main():
    global _retriever
    p = argparse.ArgumentParser()
    p.add_argument("--chunks", type=int, default=16000)
    p.add_argument("--questions", type=int, default=243)
    p.add_argument("--k", type=int, nargs="+", default=[5, 10, 20])
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--time-limit", type=int, default=115)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    expire_after(args.time_limit)
    torch.set_num_threads(1)
    chunks = build_chunks(args.chunks)
    _retriever = Retriever(chunks)
    questions = build_questions(args.questions, args.chunks)
    log.info("corpus of %d chunks, %.1f MB", len(chunks), sum(len(c.text) for c in chunks) / 1e6)
    with tempfile.TemporaryDirectory(prefix="rag_eval_") as out:
        table = ResultTable(os.path.join(out, "results.csv"))
        with ProcessPoolExecutor(args.workers, mp_context=mp.get_context("fork"), initializer=init_worker,
                                 initargs=(args.time_limit,)) as executor:
            sweep(executor, questions, args.k, table, args.log_every)
        log.info("recall %.4f full chain %.4f", table.mean("recall"), table.mean("chain"))


if __name__ == "__main__":
    main()
