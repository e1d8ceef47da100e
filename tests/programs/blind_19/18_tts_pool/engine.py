"""Worker side: a small autoregressive TTS model with full prompt attention."""
import logging
import os
import resource
import threading
import time

import torch
from torch import nn


class TTSModel(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.embed = nn.Embedding(512, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, 80)
        self.heads = heads

    def prefill(self, tokens):
        x = self.embed(tokens)
        n = x.size(0)
        q, k, v = self.qkv(x).view(n, 3, self.heads, -1).permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / k.size(-1) ** 0.5
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        att = torch.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v
        return att.transpose(0, 1).reshape(n, -1)[-1:]

    def decode(self, state, frames):
        mel = []
        for _ in range(frames):
            state = torch.tanh(state * 0.97 + 0.01)
            mel.append(self.out(state))
        return torch.cat(mel)


class Server:
    def __init__(self, worker_id):
        torch.manual_seed(0)
        self.model = TTSModel().eval()
        self.worker_id = worker_id
        self.pending = []

    def add_request(self, request):
        self.pending.append(request)

    @torch.no_grad()
    def step(self):
        done = []
        for seq_id, text, frames in self.pending:
            tokens = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()
            state = self.model.prefill(tokens)
            mel = self.model.decode(state, frames)
            done.append((seq_id, mel.numpy()))
        self.pending.clear()
        return done


def limit_memory(extra_mb):
    """Keeps one replica from eating its neighbours' memory."""
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limit = used + extra_mb * 2 ** 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def worker_main(worker_id, queue_in, queue_out, extra_mb, lifetime):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s worker-{worker_id} %(message)s")
    clock = threading.Timer(lifetime, os._exit, (0,))
    clock.daemon = True
    clock.start()
    torch.set_num_threads(1)
    srv = Server(worker_id)
    queue_out.put(("ready", worker_id, None))
    limit_memory(extra_mb)
    logging.info("serving, pid %d", os.getpid())
    while True:
        srv.add_request(queue_in.get())
        while not queue_in.empty():
            srv.add_request(queue_in.get())
        for seq_id, mel in srv.step():
            queue_out.put(("audio", seq_id, mel))
        time.sleep(0.01)
