"""Runs the dashboard backend and a few agent sessions on one host."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import threading
import time

import backend
from protocol import OUTPUT, FrameSocket

log = logging.getLogger("session")


class AgentSession:
    """Reads what an agent prints and streams it to the dashboard, frame by frame."""

    def __init__(self, number, address, rate):
        self.number, self.rate = number, rate
        self.link = FrameSocket.connect(address)
        self.rng = random.Random(number)
        self.seq = 0

    def output(self):
        words = ("reading", "file", "tests", "passed", "edit", "running", "pytest", "ok", "diff")
        return " ".join(self.rng.choices(words, k=self.rng.randint(3, 12))) + "\n"

    def push(self, text):
        self.link.send(self.number, OUTPUT, {"seq": self.seq, "data": text})
        _, _, reply = self.link.receive()
        if reply["seq"] != self.seq:
            raise RuntimeError(f"session {self.number}: ack {reply['seq']} for {self.seq}")
        self.seq += 1

    def run(self, seconds):
        began = last = time.monotonic()
        sent = 0
        while time.monotonic() - began < seconds:
            due = began + self.seq / self.rate
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            self.push(self.output())
            sent += 1
            now = time.monotonic()
            if now - last >= 5:
                behind = max(0.0, now - began - self.seq / self.rate)
                log.info("session %d: %.0f frames/s (agent prints %.0f), screen is %.1fs behind",
                         self.number, sent / (now - last), self.rate, behind)
                last, sent = now, 0


def run_session(number, address, rate, seconds):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    AgentSession(number, address, rate).run(seconds)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sessions", type=int, default=3)
    p.add_argument("--rate", type=float, default=150, help="frames per second an agent prints")
    p.add_argument("--seconds", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    server, address = backend.start(args.seconds + 10)
    log.info("backend pid %d listens on %s:%d", server.pid, *address)
    sessions = [mp.Process(target=run_session, args=(n, address, args.rate, args.seconds), daemon=True)
                for n in range(args.sessions)]
    for s in sessions:
        s.start()
    limit = threading.Timer(args.seconds + 12, os._exit, args=(1,))
    limit.daemon = True
    limit.start()
    for s in sessions:
        s.join()
    server.terminate()


if __name__ == "__main__":
    main()
