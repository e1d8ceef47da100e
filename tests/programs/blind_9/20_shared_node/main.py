"""Node scheduler: the background job is suspended while an urgent job runs, then resumed."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import signal
import time

from jobs import finetune, pretrain

log = logging.getLogger("node")


class Background:
    def __init__(self, process):
        self.process = process
        self.suspended = False

    def suspend(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        self.suspended = True
        log.info("background job %d suspended", self.process.pid)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)
        self.suspended = False
        log.info("background job %d resumed", self.process.pid)


def main(args):
    ctx = mp.get_context("fork")
    progress = ctx.Value("l", 0, lock=False)
    requests, done = ctx.Queue(), ctx.Queue()
    bg = ctx.Process(target=pretrain, args=(progress,), name="pretrain", daemon=True)
    bg.start()
    ctx.Process(target=finetune, args=(requests, done), name="finetune", daemon=True).start()
    background, job = Background(bg), 0
    while True:
        time.sleep(args.idle_seconds)
        background.suspend()
        requests.put((f"urgent-{job}", args.urgent_seconds))
        while True:
            try:
                name, steps, loss = done.get(timeout=10)
                break
            except queue.Empty:
                log.info("urgent-%d is running; background job stays suspended at step %d", job, progress.value)
        log.info("%s finished: %d steps, loss %.4f", name, steps, loss)
        background.resume()
        job += 1


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--idle-seconds", type=float, default=8)
    ap.add_argument("--urgent-seconds", type=float, default=45)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
