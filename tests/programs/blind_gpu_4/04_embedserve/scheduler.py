"""Request scheduler of the embedding engine: the GPU works on one batch while the previous one is answered."""
import collections
import logging
import queue
import time

import torch

log = logging.getLogger("engine")


class Request:
    __slots__ = ("client", "rid", "text", "finished")

    def __init__(self, client, rid, text):
        self.client, self.rid, self.text = client, rid, text
        self.finished = False


class Batch:
    def __init__(self, reqs=()):
        self.reqs = list(reqs)
        self.batch_is_full = False

    def __len__(self):
        return len(self.reqs)

    def filter_finished(self):
        self.reqs = [r for r in self.reqs if not r.finished]

    def merge(self, other):
        self.reqs.extend(other.reqs)


class Scheduler:
    def __init__(self, model, device, inbox, outboxes, max_running, stats_interval):
        self.model, self.device = model, device
        self.inbox, self.outboxes = inbox, outboxes
        self.max_running = max_running
        self.stats_interval = stats_interval
        self.waiting = collections.deque()
        self.running = Batch()
        self.last_batch = None
        self.results = collections.deque()
        self.answered = 0

    def receive(self, idle):
        try:
            item = self.inbox.get(timeout=0.02) if idle else self.inbox.get_nowait()
            while True:
                self.waiting.append(Request(*item))
                item = self.inbox.get_nowait()
        except queue.Empty:
            pass

    def get_new_batch(self):
        if self.running.batch_is_full or not self.waiting:
            return None
        allocatable = self.max_running - len(self.running)
        if allocatable <= 0:
            self.running.batch_is_full = True
            return None
        picked = []
        for req in self.waiting:
            if len(picked) >= allocatable:
                self.running.batch_is_full = True
                break
            picked.append(req)
        for _ in picked:
            self.waiting.popleft()
        return Batch(picked)

    def get_next_batch(self):
        if self.last_batch is not None:
            before = len(self.last_batch)
            self.last_batch.filter_finished()
            if len(self.last_batch) < before:
                self.running.batch_is_full = False
            if len(self.last_batch):
                self.running.merge(self.last_batch)
        # encoder requests are done after their single pass
        self.running.filter_finished()
        return self.get_new_batch()

    @torch.inference_mode()
    def launch(self, batch):
        ids = self.model.tokenize([r.text for r in batch.reqs]).to(self.device, non_blocking=True)
        out = self.model(ids)
        done = None
        if out.is_cuda:
            out = out.to("cpu", non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        self.results.append((list(batch.reqs), out, done))

    def pop_and_process(self):
        reqs, out, done = self.results.popleft()
        if done is not None:
            done.synchronize()
        vectors = out.numpy()
        for req, vector in zip(reqs, vectors):
            req.finished = True
            self.outboxes[req.client].put((req.rid, vector.copy()))
        self.answered += len(reqs)

    def run(self):
        last_stats = time.time()
        while True:
            self.receive(idle=self.last_batch is None and not self.results)
            batch = self.get_next_batch()
            if batch is not None:
                self.launch(batch)
            if self.last_batch is not None:
                self.pop_and_process()
            self.last_batch = batch
            if time.time() - last_stats > self.stats_interval:
                last_stats = time.time()
                log.info("running %d, waiting %d, answered %d", len(self.running), len(self.waiting), self.answered)
