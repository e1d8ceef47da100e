"""Language model workers over a sharded corpus; the sample index is built at the first start."""
import argparse
import multiprocessing as mp
import os
import tempfile

from worker import worker_main


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--shards", type=int, default=400)
    parser.add_argument("--read-seconds", type=float, default=0.1)
    parser.add_argument("--train-seconds", type=float, default=85)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokens_") as directory:
        ready = mp.Event()
        path = os.path.join(directory, "index.npy")
        workers = [mp.Process(target=worker_main, args=(i, path, ready, args), name=f"worker-{i}")
                   for i in range(args.workers)]
        for process in workers:
            process.start()
        for process in workers:
            process.join()


if __name__ == "__main__":
    main()
