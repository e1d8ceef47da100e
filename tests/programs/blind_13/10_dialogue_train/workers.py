import json
import os
import re
import time
import zlib

import torch


class DialogueReader:
    """Reads one shard again and again and turns its episodes into vectors."""

    def __init__(self, path, batchsize, fetch_time=0.12):
        self.path, self.batchsize, self.fetch_time = path, batchsize, fetch_time

    def tokenize(self, text):
        return [1 + zlib.crc32(t.encode()) % 4095 for t in re.findall(r"\w+", text.lower())]

    def episodes(self):
        while True:
            with open(self.path) as f:
                for line in f:
                    yield json.loads(line)

    def pad(self, rows):
        width = max(map(len, rows))
        return torch.tensor([r + [0] * (width - len(r)) for r in rows])

    def batches(self):
        texts, labels = [], []
        for ep in self.episodes():
            texts.append(self.tokenize(ep["text"]))
            labels.append(self.tokenize(ep["labels"][0]))
            if len(texts) == self.batchsize:
                time.sleep(self.fetch_time)  # the annotations come from the feature service
                yield {"text_vec": self.pad(texts), "label_vec": self.pad(labels)}
                texts, labels = [], []


def _background_worker(index, path, batchsize, queue):
    torch.set_num_threads(1)
    for batch in DialogueReader(path, batchsize).batches():
        queue.put({k: v.numpy() for k, v in batch.items()})


class BackgroundWorld:
    def __init__(self, datapath, num_workers, batchsize, ctx):
        self.queue = ctx.Queue(maxsize=num_workers * 4)
        files = sorted(f for f in os.listdir(datapath) if f.endswith(".jsonl"))
        self.processes = []
        for i in range(num_workers):
            p = ctx.Process(target=_background_worker, name=f"bg-worker-{i}", daemon=True,
                            args=(i, os.path.join(datapath, files[i]), batchsize, self.queue))
            p.start()
            self.processes.append(p)

    def next_batch(self):
        return {k: torch.from_numpy(v) for k, v in self.queue.get().items()}

    def shutdown(self):
        for p in self.processes:
            p.terminate()
        for p in self.processes:
            p.join()
