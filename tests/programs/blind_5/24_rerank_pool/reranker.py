import logging
import time
from multiprocessing import Pool

import numpy as np
import torch

log = logging.getLogger("rerank")


class Reranker:
    def __init__(self, n_docs, dim, workers):
        rng = np.random.default_rng(0)
        self.doc_vectors = rng.random((n_docs, dim), dtype=np.float32)
        self.doc_ids = [f"doc-{i:07d}" for i in range(n_docs)]
        self.weights = torch.randn(dim)
        self.workers = workers

    def score_query(self, query):
        cand, vec = query
        torch.set_num_threads(1)
        sub = torch.from_numpy(self.doc_vectors[cand]) * self.weights
        scores = sub @ vec
        top = scores.topk(10).indices.tolist()
        return [self.doc_ids[cand[i]] for i in top]

    def run(self, queries_per_round, rounds):
        rng = np.random.default_rng(1)
        n, dim = self.doc_vectors.shape
        with Pool(self.workers) as pool:
            for r in range(rounds):
                queries = [(rng.integers(0, n, 200), torch.from_numpy(rng.random(dim, dtype=np.float32)).numpy())
                           for _ in range(queries_per_round)]
                queries = [(c, torch.tensor(v)) for c, v in queries]
                t0 = time.time()
                hits = []
                for i, ids in enumerate(pool.imap(self.score_query, queries)):
                    hits.append(ids[0])
                log.info("round %d: %d queries, %.1f q/s, first hit %s", r, len(hits),
                         len(hits) / (time.time() - t0), hits[0])
