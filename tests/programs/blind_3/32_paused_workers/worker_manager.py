import multiprocessing as mp
import os
import signal
import time

import numpy as np


def serve(conn, seed):
    rng = np.random.default_rng(seed)
    while True:
        job = conn.recv()
        if job is None:
            return
        value = 0.0
        for _ in range(20):
            value += float(np.linalg.norm(rng.normal(size=(40, 40))))
            time.sleep(0.01)
        conn.send((job, value))


class LocalWorker:
    def __init__(self, rank):
        self.conn, child = mp.Pipe()
        self.proc = mp.Process(target=serve, args=(child, rank), name=f"runner-{rank}", daemon=True)
        self.proc.start()
        self.paused = False

    def pause(self):
        if not self.paused:
            os.kill(self.proc.pid, signal.SIGSTOP)
            self.paused = True

    def resume(self):
        if self.paused:
            os.kill(self.proc.pid, signal.SIGCONT)
            self.paused = False

    def run(self, job):
        self.conn.send(job)

    def result(self):
        return self.conn.recv()
