"""Small model server: one process serves embeddings and chat, two client processes send load."""
import argparse
import logging
import multiprocessing as mp
import os
import time

from clients import chat_client, embed_client
from server import ModelServer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--duration", type=float, default=180)
    p.add_argument("--embed-rate", type=float, default=60, help="embedding requests per second")
    p.add_argument("--first-chat", type=float, default=6, help="seconds until the first chat message")
    p.add_argument("--chat-every", type=float, default=45)
    p.add_argument("--max-tokens", type=int, default=40)
    return p.parse_args()


def serve(requests, replies, args):
    ModelServer(requests, replies, args.max_tokens).run()


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    requests = mp.Queue()
    replies = {"embed": mp.Queue(), "chat": mp.Queue()}
    server = mp.Process(target=serve, name="server", args=(requests, replies, args))
    server.start()
    clients = [
        mp.Process(target=embed_client, name="embed-client", args=(requests, replies["embed"], args)),
        mp.Process(target=chat_client, name="chat-client", args=(requests, replies["chat"], args)),
    ]
    for c in clients:
        c.start()
    t0 = time.time()
    while time.time() - t0 < args.duration and server.is_alive():
        time.sleep(1)
    for c in clients:
        c.terminate()
    requests.put(None)
    server.join()


if __name__ == "__main__":
    main()
