import argparse
import logging
import multiprocessing as mp
import os
import queue
import threading
import time

import numpy as np
import torch
from torch import nn

from audio import encode_wav, load_audio

FORMAT = "%(asctime)s %(processName)s %(message)s"
log = logging.getLogger("gateway")


def setup(limit):
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    torch.set_num_threads(1)
    t = threading.Timer(limit, os._exit, (0,))
    t.daemon = True
    t.start()


class CommandRecogniser(nn.Module):
    def __init__(self, classes=35):
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.conv = nn.Sequential(nn.Conv1d(201, 64, 3, stride=2), nn.ReLU(), nn.Conv1d(64, 64, 3, stride=2), nn.ReLU())
        self.out = nn.Linear(64, classes)

    def forward(self, wav):
        spec = torch.stft(wav, 400, 160, window=self.window, return_complex=True).abs().add(1e-5).log()
        return self.out(self.conv(spec).mean(-1))


def preprocess_worker(uploads, features, args):
    setup(args.limit)
    while True:
        request_id, client, data = uploads.get()
        wav = load_audio(data)
        wav = torch.nn.functional.pad(wav, (0, max(0, args.samples - len(wav))))[: args.samples]
        features.put((request_id, client, wav.numpy()))


def model_worker(features, replies, args):
    setup(args.limit)
    torch.manual_seed(0)
    net = CommandRecogniser().eval()
    served, idle, mark = 0, 0.0, time.time()
    while True:
        t = time.time()
        batch = [features.get()]
        idle += time.time() - t
        while len(batch) < args.max_batch:
            try:
                batch.append(features.get_nowait())
            except queue.Empty:
                break
        with torch.no_grad():
            labels = net(torch.from_numpy(np.stack([b[2] for b in batch]))).argmax(1).tolist()
        for (request_id, client, _), label in zip(batch, labels):
            replies[client].put((request_id, label))
        served += len(batch)
        if time.time() - mark > 10:
            log.info("model: %.1f requests/s, idle %.0f%%", served / (time.time() - mark), 100 * idle / (time.time() - mark))
            served, idle, mark = 0, 0.0, time.time()


class Client(threading.Thread):
    """A connected device: sends a clip, waits for the label, sends the next one."""

    def __init__(self, index, uploads, reply, latencies):
        super().__init__(daemon=True, name=f"client-{index}")
        self.index, self.uploads, self.reply, self.latencies = index, uploads, reply, latencies
        rng = np.random.default_rng(index)
        rate, depth, channels = [(44100, 3, 1), (44100, 2, 2), (22050, 2, 2), (44100, 3, 2)][index % 4]
        self.clips = []
        for _ in range(8):
            n = int(rate * rng.uniform(0.6, 1.0))
            tone = np.sin(2 * np.pi * rng.uniform(200, 900) * np.arange(n) / rate) * 0.3
            self.clips.append(encode_wav(tone, rate, depth, channels))

    def run(self):
        n = 0
        while True:
            t = time.time()
            self.uploads.put((n, self.index, self.clips[n % len(self.clips)]))
            self.reply.get()
            self.latencies.append(time.time() - t)
            n += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--preprocess-workers", type=int, default=2)
    p.add_argument("--max-batch", type=int, default=16)
    p.add_argument("--samples", type=int, default=16000)
    p.add_argument("--limit", type=float, default=135)
    args = p.parse_args()
    setup(args.limit)
    ctx = mp.get_context("spawn")
    uploads, features = ctx.Queue(), ctx.Queue()
    replies = [ctx.Queue() for _ in range(args.clients)]
    procs = [ctx.Process(target=preprocess_worker, args=(uploads, features, args), name=f"preprocess-{i}", daemon=True)
             for i in range(args.preprocess_workers)]
    procs.append(ctx.Process(target=model_worker, args=(features, replies, args), name="model", daemon=True))
    for pr in procs:
        pr.start()
    latencies = []
    clients = [Client(i, uploads, replies[i], latencies) for i in range(args.clients)]
    for c in clients:
        c.start()
    end = time.time() + args.limit - 5
    while time.time() < end:
        time.sleep(10)
        window, latencies[:] = sorted(latencies), []
        if window:
            log.info("%.1f requests/s, latency p50 %.0f ms p99 %.0f ms", len(window) / 10,
                     1000 * window[len(window) // 2], 1000 * window[int(len(window) * 0.99)])


if __name__ == "__main__":
    main()
