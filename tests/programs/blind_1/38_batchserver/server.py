"""Inference server: model processes wait for requests, traffic comes in bursts."""
import argparse
import logging
import multiprocessing as mp
import random
import socketserver
import threading
import time

import torch
from torch import nn

log = logging.getLogger("server")


def model_worker(idx, inbox, outbox):
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10)).eval()
    with torch.no_grad():
        for rid, vec in iter(inbox.get, None):
            time.sleep(0.03)
            outbox.put((rid, int(net(torch.tensor(vec)).argmax())))


class Gateway:
    def __init__(self, workers):
        self.inbox, self.outbox = mp.Queue(maxsize=256), mp.Queue()
        self.futures, self.lock, self.n = {}, threading.Lock(), 0
        self.procs = [mp.Process(target=model_worker, args=(i, self.inbox, self.outbox), name=f"model-{i}", daemon=True)
                      for i in range(workers)]
        for p in self.procs:
            p.start()
        threading.Thread(target=self._dispatch, daemon=True).start()

    def _dispatch(self):
        while True:
            rid, ans = self.outbox.get()
            with self.lock:
                ev, box = self.futures.pop(rid)
            box.append(ans)
            ev.set()

    def ask(self, vec):
        with self.lock:
            rid, self.n = self.n, self.n + 1
            ev, box = self.futures.setdefault(rid, (threading.Event(), []))
        self.inbox.put((rid, vec))
        ev.wait(30)
        return box[0]


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            rng = random.Random(line)
            ans = self.server.gateway.ask([rng.gauss(0, 1) for _ in range(64)])
            self.wfile.write(f"{ans}\n".encode())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--port", type=int, default=0)
    ap.add_argument("--demo-traffic", type=float, default=28.0, help="seconds between bursts of the demo client")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    gw = Gateway(args.workers)
    srv = socketserver.ThreadingTCPServer(("127.0.0.1", args.port), Handler)
    srv.daemon_threads, srv.gateway = True, gw
    if args.demo_traffic:
        from client import burst_forever
        threading.Thread(target=burst_forever, args=(srv.server_address, args.demo_traffic), daemon=True).start()
    log.info("listening on %s", srv.server_address)
    srv.serve_forever()


if __name__ == "__main__":
    main()
