import argparse, logging, time
import torch
import torch.multiprocessing as mp
from bucket import train_bucket

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--num-threads", type=int, default=8)
    p.add_argument("--dim", type=int, default=256)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    emb = torch.randn(20000, a.dim).share_memory_()
    done = mp.get_context("spawn").Queue()
    procs = [mp.get_context("spawn").Process(target=train_bucket, args=(r, emb, a.num_threads, done)) for r in range(a.workers)]
    for q in procs: q.start()
    t0, edges = time.time(), 0
    while any(q.is_alive() for q in procs):
        edges += done.get()
        logging.info("%d edges, %.0f edges/s", edges, edges / (time.time() - t0))

if __name__ == "__main__":
    main()
