import argparse
import json
import logging
import multiprocessing as mp
import random
import socket
import time

from service import serve

log = logging.getLogger("cron")


def nightly_batch(address, seed, batches):
    rng = random.Random(seed)
    with socket.create_connection(address, timeout=60) as sock:
        stream = sock.makefile("rw")
        for _ in range(batches):
            rows = [[rng.gauss(0, 1) for _ in range(8)] for _ in range(16)]
            stream.write(json.dumps(rows) + "\n")
            stream.flush()
            if len(json.loads(stream.readline())) != len(rows):
                raise RuntimeError("short answer")


class Cron:
    def __init__(self, address, args):
        self.address, self.args = address, args

    def run(self):
        n = 0
        while self.args.rounds == 0 or n < self.args.rounds:
            job = mp.Process(target=nightly_batch, args=(self.address, n, self.args.batches))
            job.start()
            job.join()
            log.info("job %d finished with %d", n, job.exitcode)
            n += 1
            time.sleep(self.args.every)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--every", type=float, default=20)
    p.add_argument("--rounds", type=int, default=0, help="0 runs until stopped")
    p.add_argument("--batches", type=int, default=30)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s cron %(message)s")
    ours, theirs = mp.Pipe()
    server = mp.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    Cron(ours.recv(), args).run()
    server.terminate()
    server.join()
