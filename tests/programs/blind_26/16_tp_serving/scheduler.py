"""Continuous batching scheduler, one per tensor parallel rank."""
import logging
import queue
import time
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist

from model import Decoder

log = logging.getLogger("scheduler")


class Request:
    def __init__(self, rid, token, max_new_tokens):
        self.rid, self.token, self.max_new_tokens = rid, token, max_new_tokens
        self.produced = 0
        self.queued_at = time.perf_counter()


class Scheduler:
    def __init__(self, rank, args, inbox, outbox):
        self.rank, self.args = rank, args
        self.inbox, self.outbox = inbox, outbox
        self.tp_group = dist.new_group(timeout=timedelta(minutes=30))
        self.cpu_group = dist.new_group(timeout=timedelta(minutes=30))
        self.decoder = Decoder(args, rank, args.tp, self.tp_group)
        self.waiting = deque()
        self.running = []
        self.forward_ct = 0
        self.aborted = 0
        self.finished = 0

    def recv_requests(self):
        received = []
        if self.rank == 0:
            while True:
                try:
                    received.append(self.inbox.get_nowait())
                except queue.Empty:
                    break
        box = [received]
        dist.broadcast_object_list(box, src=0, group=self.cpu_group)
        return box[0]

    def abort_on_waiting_timeout(self):
        now = time.perf_counter()
        keep = deque()
        for req in self.waiting:
            if now - req.queued_at > self.args.waiting_timeout:
                self.aborted += 1
                self.reply(req, "aborted")
            else:
                keep.append(req)
        self.waiting = keep

    def reply(self, req, reason):
        if self.rank == 0:
            self.outbox.put((req.rid, reason, req.produced))

    def next_batch(self):
        while self.waiting and len(self.running) < self.args.max_running:
            self.running.append(self.waiting.popleft())
        return self.running

    def process_result(self, tokens):
        for req, token in zip(self.running, tokens):
            req.token = token
            req.produced += 1
        for req in [r for r in self.running if r.produced >= r.max_new_tokens]:
            self.running.remove(req)
            self.finished += 1
            self.reply(req, "finished")

    def event_loop(self):
        mark = time.monotonic()
        while True:
            for rid, token, length in self.recv_requests():
                self.waiting.append(Request(rid, token, length))
            self.abort_on_waiting_timeout()
            batch = self.next_batch()
            if batch:
                self.process_result(self.decoder.decode([r.token for r in batch]))
                self.forward_ct += 1
            else:
                time.sleep(0.002)
            if time.monotonic() - mark > self.args.report_every:
                mark = time.monotonic()
                log.info("TP%d forward %d running %d waiting %d finished %d aborted %d", self.rank,
                         self.forward_ct, len(self.running), len(self.waiting), self.finished, self.aborted)


def run_scheduler(rank, args, port, inbox, outbox):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=args.tp)
    Scheduler(rank, args, inbox, outbox).event_loop()
