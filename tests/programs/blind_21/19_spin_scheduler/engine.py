"""Engine side: scheduler with continuous batching, model runner, detokenizer."""
import os
import threading
import time
from collections import deque

import torch
from torch import nn


def lifetime(seconds):
    def expire():
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


class TinyDecoder(nn.Module):
    def __init__(self, vocab=2000, dim=128):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.GRU(dim, dim, num_layers=2, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    @torch.inference_mode()
    def prefill(self, tokens):
        out, hidden = self.cell(self.embed(tokens))
        return self.out(out[:, -1]).argmax(-1), hidden

    @torch.inference_mode()
    def decode(self, tokens, hidden):
        out, hidden = self.cell(self.embed(tokens[:, None]), hidden)
        return self.out(out[:, -1]).argmax(-1), hidden


class Sequence:
    def __init__(self, request):
        self.id, self.prompt, self.remaining = request["id"], request["prompt"], request["max_tokens"]
        self.token, self.hidden, self.output = None, None, []


class Scheduler:
    """Event loop of the engine: take what has arrived, one step for all running sequences, hand on."""

    def __init__(self, requests, to_detok, max_running=8):
        self.requests, self.to_detok, self.max_running = requests, to_detok, max_running
        self.model = TinyDecoder().eval()
        self.waiting, self.running = deque(), []
        self.iterations = 0

    def recv_requests(self):
        while self.requests.poll(0):
            self.waiting.append(Sequence(self.requests.recv()))

    def admit(self):
        while self.waiting and len(self.running) < self.max_running:
            seq = self.waiting.popleft()
            seq.token, seq.hidden = self.model.prefill(torch.tensor([seq.prompt]))
            self.running.append(seq)

    def step(self):
        tokens = torch.cat([s.token for s in self.running])
        hidden = torch.cat([s.hidden for s in self.running], dim=1)
        tokens, hidden = self.model.decode(tokens, hidden)
        still = []
        for i, seq in enumerate(self.running):
            seq.token, seq.hidden = tokens[i:i + 1], hidden[:, i:i + 1]
            seq.output.append(int(seq.token))
            seq.remaining -= 1
            if seq.remaining:
                still.append(seq)
            else:
                self.to_detok.send({"id": seq.id, "tokens": seq.output})
        self.running = still

    def event_loop(self):
        while True:
            self.recv_requests()
            self.admit()
            if self.running:
                self.step()
            self.iterations += 1


def run_scheduler(requests, to_detok, limit):
    lifetime(limit)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Scheduler(requests, to_detok).event_loop()


def run_detokenizer(from_scheduler, replies, limit):
    lifetime(limit)
    vocabulary = [f"tok{i}" for i in range(2000)]
    while True:
        try:
            message = from_scheduler.recv()
        except EOFError:
            return
        replies.send({"id": message["id"], "text": " ".join(vocabulary[t] for t in message["tokens"])})
