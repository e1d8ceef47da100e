"""Replay a batch of chat conversations against a local model worker."""
import argparse
import json
import logging
import multiprocessing as mp
import random
import socket
import time

from model_worker import run_worker

logger = logging.getLogger("replay")

OPENERS = ["Summarise the meeting notes:", "Translate to German:", "Write a haiku about", "Explain to a child:",
           "Rewrite politely:", "List three risks of"]
WORDS = ("delivery schedule invoice harbour winter network committee pump station budget gradient "
         "forecast dataset reviewer tomato algorithm violin coast railway").split()


class ChatClient:
    def __init__(self, user, host, port, seed):
        self.user = user
        self.rng = random.Random(seed)
        self.sock = socket.create_connection((host, port))
        self.file = self.sock.makefile("rw", encoding="utf-8")
        self.history = []
        self.sent = 0

    def next_prompt(self):
        if self.rng.random() < 0.35:
            self.history = []
        turn = self.rng.choice(OPENERS) + " " + " ".join(self.rng.choices(WORDS, k=self.rng.randint(3, 9)))
        self.history.append(turn)
        return "\n".join(self.history[-6:])

    def ask(self):
        self.sent += 1
        request = {"id": f"{self.user}-{self.sent}", "prompt": self.next_prompt(), "max_new_tokens": 12}
        self.file.write(json.dumps(request) + "\n")
        self.file.flush()
        reply = json.loads(self.file.readline())
        if reply["error_code"] == 0:
            self.history.append(reply["text"])
        else:
            self.history = []
        return reply


def run_client(user, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)s | %(name)s | %(message)s")
    log = logging.getLogger(user)
    client = ChatClient(user, args.host, port, seed=hash_user(user))
    ok = failed = 0
    deadline = time.monotonic() + args.duration
    last = time.monotonic()
    while time.monotonic() < deadline:
        reply = client.ask()
        if reply["error_code"] == 0:
            ok += 1
        else:
            failed += 1
        if time.monotonic() - last > 2:
            last = time.monotonic()
            log.info("answers=%d failed=%d", ok, failed)
        time.sleep(client.rng.uniform(0.02, 0.1))
    log.info("finished: answers=%d failed=%d", ok, failed)


def hash_user(user):
    return sum(ord(c) * (i + 1) for i, c in enumerate(user))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model-name", default="tiny-chat-v1")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--users", type=int, default=3)
    p.add_argument("--limit-worker-concurrency", type=int, default=3)
    p.add_argument("--context-len", type=int, default=256)
    p.add_argument("--duration", type=float, default=110.0)
    p.add_argument("--time-limit", type=float, default=130.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)s | %(name)s | %(message)s")
    ctx = mp.get_context("spawn")
    parent, child = ctx.Pipe()
    worker = ctx.Process(target=run_worker, args=(args, child), name="model_worker", daemon=True)
    worker.start()
    port = parent.recv()
    logger.info("model worker listens on %s:%d", args.host, port)
    clients = [ctx.Process(target=run_client, args=(f"user{i}", args, port), name=f"user{i}", daemon=True)
               for i in range(args.users)]
    for c in clients:
        c.start()
    end = time.monotonic() + args.time_limit
    while time.monotonic() < end and any(c.is_alive() for c in clients):
        time.sleep(1.0)
    logger.info("replay over, still open: %d", sum(c.is_alive() for c in clients))
    worker.terminate()


if __name__ == "__main__":
    main()
