import argparse
import logging
import multiprocessing as mp
import os
import queue
import random
import threading
import time

import torch

from kv_offload import DecodeKVCacheOffloadManager, Request, SlotPool
from store import StoreWriter, store_process

log = logging.getLogger("decode")


def wall_clock(limit):
    t = threading.Timer(limit, os._exit, (0,))
    t.daemon = True
    t.start()


class Scheduler:
    """Continuous batching decode loop of one engine."""

    def __init__(self, inbox, outbox, to_store, from_store, args):
        self.inbox, self.outbox, self.args = inbox, outbox, args
        self.pool = SlotPool(args.slots, args.layers, args.heads, args.max_tokens, args.head_dim)
        self.offloader = DecodeKVCacheOffloadManager(self.pool, StoreWriter(to_store, from_store))
        self.waiting, self.running, self.offloading = [], {}, {}
        self.weight = torch.randn(args.heads * args.head_dim, args.heads * args.head_dim) * 0.05
        self.aborted = self.completed = 0

    def receive(self):
        while True:
            try:
                kind, payload = self.inbox.get_nowait()
            except queue.Empty:
                return
            if kind == "generate":
                self.waiting.append(Request(**payload))
            elif kind == "abort":
                self.abort_request(payload)

    def abort_request(self, rid):
        self.aborted += 1
        self.waiting = [r for r in self.waiting if r.rid != rid]
        req = self.running.pop(rid, None) or self.offloading.pop(rid, None)
        if req is not None:
            self.pool.release(req.slot)

    def admit(self):
        while self.waiting and self.pool.free:
            req = self.waiting.pop(0)
            req.slot = self.pool.acquire()
            n = min(req.tokens, self.args.max_tokens)
            self.pool.kv[req.slot, ..., :n, :] = torch.rand(1)
            self.running[req.rid] = req

    @torch.no_grad()
    def decode_step(self):
        reqs = list(self.running.values())
        if not reqs:
            time.sleep(0.005)
            return
        last = torch.stack([self.pool.kv[r.slot, 0, 0, :, min(r.tokens + r.generated, self.args.max_tokens) - 1].flatten()
                            for r in reqs])
        state = torch.tanh(last @ self.weight)
        for r, s in zip(reqs, state):
            pos = min(r.tokens + r.generated, self.args.max_tokens - 1)
            self.pool.kv[r.slot, :, :, :, pos] = s.view(self.args.heads, self.args.head_dim)
            r.generated += 1
            if r.finished:
                self.outbox.put((r.rid, r.generated))
                self.offloading[r.rid] = self.running.pop(r.rid)
                self.offloader.offload(r)

    def run(self):
        mark = time.time()
        while True:
            self.receive()
            for req in self.offloader.check_offload_progress(self.offloading):
                self.offloading.pop(req.rid, None)
                self.completed += 1
            self.admit()
            self.decode_step()
            time.sleep(self.args.step_seconds)
            if time.time() - mark > 5:
                mark = time.time()
                log.info("running %d waiting %d offloading %d completed %d aborted %d", len(self.running),
                         len(self.waiting), len(self.offloading), self.completed, self.aborted)


def decode_process(inbox, outbox, to_store, from_store, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s decode %(message)s")
    wall_clock(args.limit)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Scheduler(inbox, outbox, to_store, from_store, args).run()


def client_traffic(inbox, outbox, args):
    """Open connections; a share of the clients hangs up as soon as they have read the answer."""
    rng = random.Random(4)
    n, due = 0, []
    end = time.time() + args.limit - 5
    while time.time() < end:
        rid = f"req-{n}"
        n += 1
        inbox.put(("generate", dict(rid=rid, tokens=rng.randint(96, 224), max_new=rng.randint(8, 24))))
        wait = time.time() + 1.0 / args.rate
        while time.time() < wait:
            try:
                rid, _ = outbox.get(timeout=max(0.001, wait - time.time()))
            except queue.Empty:
                break
            if rng.random() < args.hangup:
                inbox.put(("abort", rid))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--slots", type=int, default=24)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--max-tokens", type=int, default=256)
    p.add_argument("--rate", type=float, default=10.0)
    p.add_argument("--hangup", type=float, default=0.4)
    p.add_argument("--bandwidth", type=float, default=25e6)
    p.add_argument("--step-seconds", type=float, default=0.005)
    p.add_argument("--limit", type=float, default=135)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s frontend %(message)s")
    wall_clock(args.limit)
    ctx = mp.get_context("spawn")
    inbox, outbox, to_store, from_store = ctx.Queue(), ctx.Queue(), ctx.Queue(), ctx.Queue()
    ctx.Process(target=store_process, args=(to_store, from_store, args.bandwidth, args.limit), daemon=True,
                name="store").start()
    ctx.Process(target=decode_process, args=(inbox, outbox, to_store, from_store, args), daemon=True,
                name="decode").start()
    log.info("frontend up")
    client_traffic(inbox, outbox, args)


if __name__ == "__main__":
    main()
