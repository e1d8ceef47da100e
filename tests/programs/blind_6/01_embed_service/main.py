"""Ingest documents: the model is loaded once, then shared by pre-forked workers."""
import argparse
import asyncio
import logging
import multiprocessing as mp
import os
import random

import torch

from encoder import BagEncoder, embed

log = logging.getLogger("ingest")
WORDS = "graph node edge index chunk entity relation query store vector rank cache".split()


def make_documents(count, seed):
    rng = random.Random(seed)
    for i in range(count):
        yield i, [" ".join(rng.choices(WORDS, k=30)) for _ in range(8)]


async def worker_main(model, jobs, results):
    loop = asyncio.get_running_loop()
    while True:
        job = await loop.run_in_executor(None, jobs.get)
        if job is None:
            break
        doc_id, chunks = job
        vectors = await embed(model, chunks)
        results.put((doc_id, os.getpid(), vectors))


def run_worker(index, model, jobs, results):
    torch.set_num_threads(1)
    log.info("worker %d up, pid %d", index, os.getpid())
    asyncio.run(worker_main(model, jobs, results))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--documents", type=int, default=400)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s"
    )
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    model = BagEncoder().eval()
    probe = asyncio.run(embed(model, ["warm up the encoder before serving"]))
    log.info("model ready, dim=%d", probe.shape[1])

    ctx = mp.get_context("fork")
    jobs, results = ctx.Queue(), ctx.Queue()
    procs = [
        ctx.Process(target=run_worker, args=(i, model, jobs, results), name=f"ingest-{i}")
        for i in range(args.workers)
    ]
    for p in procs:
        p.start()
    for job in make_documents(args.documents, args.seed):
        jobs.put(job)
    for _ in procs:
        jobs.put(None)

    store = {}
    for done in range(1, args.documents + 1):
        doc_id, pid, vectors = results.get()
        store[doc_id] = vectors
        if done % 50 == 0:
            log.info("indexed %d/%d documents (last from %d)", done, args.documents, pid)
    for p in procs:
        p.join()
    log.info("finished, %d documents in store", len(store))


if __name__ == "__main__":
    main()
