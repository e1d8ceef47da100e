import logging
import queue
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn

log = logging.getLogger("encoder")


class SentenceEncoder(nn.Module):
    def __init__(self, buckets=4096, dim=128, layers=4):
        super().__init__()
        torch.manual_seed(0)
        self.buckets = buckets
        self.emb = nn.Embedding(buckets, dim, padding_idx=0)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 4, 256, batch_first=True) for _ in range(layers))

    def tokenize(self, sentences):
        ids = [[1 + sum(w.encode()) % (self.buckets - 1) for w in s.strip().split()] for s in sentences]
        width = max(map(len, ids))
        return torch.tensor([row + [0] * (width - len(row)) for row in ids])

    @torch.no_grad()
    def encode(self, sentences, batch_size):
        self.eval()
        order = np.argsort([-len(s) if s else 0 for s in sentences], kind="stable")
        out = [None] * len(sentences)
        for start in range(0, len(sentences), batch_size):
            idx = order[start:start + batch_size]
            h = self.emb(self.tokenize([sentences[i] for i in idx]))
            for layer in self.layers:
                h = layer(h)
            for i, v in zip(idx, nn.functional.normalize(h.mean(1)).numpy()):
                out[i] = v
        return np.stack(out)

    def start_multi_process_pool(self, num_workers):
        ctx = mp.get_context("fork")
        inputs, outputs = ctx.Queue(), ctx.Queue()
        processes = []
        for i in range(num_workers):
            p = ctx.Process(target=self._encode_multi_process_worker, name="encode-%d" % i,
                            args=(self, inputs, outputs), daemon=True)
            p.start()
            processes.append(p)
        log.info("started workers %s", [p.pid for p in processes])
        return {"input": inputs, "output": outputs, "processes": processes}

    @staticmethod
    def _encode_multi_process_worker(model, inputs, outputs):
        torch.set_num_threads(1)
        while True:
            try:
                chunk_id, batch_size, sentences = inputs.get()
                embeddings = model.encode(sentences, batch_size)
                outputs.put((chunk_id, embeddings))
            except queue.Empty:
                break

    def encode_multi_process(self, sentences, pool, chunk_size, batch_size):
        last_chunk_id = 0
        for start in range(0, len(sentences), chunk_size):
            pool["input"].put((last_chunk_id, batch_size, sentences[start:start + chunk_size]))
            last_chunk_id += 1
        results = []
        t0 = time.time()
        for n in range(1, last_chunk_id + 1):
            results.append(pool["output"].get())
            if n % 5 == 0:
                log.info("chunks: %d/%d (%.1f sentences/s)", n, last_chunk_id, n * chunk_size / (time.time() - t0))
        return np.concatenate([emb for _, emb in sorted(results, key=lambda r: r[0])])

    @staticmethod
    def stop_multi_process_pool(pool):
        for p in pool["processes"]:
            p.terminate()
        for p in pool["processes"]:
            p.join()
