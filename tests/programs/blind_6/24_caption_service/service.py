"""Caption service: HTTP-less JSON lines in front, model processes behind."""
import asyncio
import json
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

log = logging.getLogger("service")


class Captioner(nn.Module):
    def __init__(self, vocab=300, dim=64):
        super().__init__()
        self.enc = nn.Linear(128, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.out = nn.Linear(dim, vocab)
        self.emb = nn.Embedding(vocab, dim)

    @torch.inference_mode()
    def caption(self, features, length=12):
        h = torch.tanh(self.enc(torch.tensor(features)[None]))
        tok, words = torch.zeros(1, dtype=torch.long), []
        for _ in range(length):
            h = self.cell(self.emb(tok), h)
            tok = self.out(h).argmax(-1)
            words.append(int(tok))
        return words


def model_process(requests, replies):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Captioner().eval()
    while True:
        job = requests.get()
        if job is None:
            return
        number, features = job
        started = time.perf_counter()
        replies.put((number, model.caption(features), time.perf_counter() - started))


class CaptionService:
    def __init__(self, workers):
        ctx = mp.get_context("fork")
        self.requests, self.replies = ctx.Queue(), ctx.Queue()
        self.procs = [
            ctx.Process(target=model_process, args=(self.requests, self.replies), name=f"model-{i}", daemon=True)
            for i in range(workers)
        ]
        for p in self.procs:
            p.start()
        self.pending, self.count = {}, 0

    async def pump(self):
        loop = asyncio.get_running_loop()
        while True:
            number, words, seconds = await loop.run_in_executor(None, self.replies.get)
            self.pending.pop(number).set_result((words, seconds))

    async def handle(self, reader, writer):
        async for line in reader:
            self.count += 1
            future = asyncio.get_running_loop().create_future()
            self.pending[self.count] = future
            self.requests.put((self.count, json.loads(line)["features"]))
            words, seconds = await future
            log.info("request %d answered in %.1f ms", self.count, 1e3 * seconds)
            writer.write((json.dumps({"words": words}) + "\n").encode())
            await writer.drain()
        writer.close()
