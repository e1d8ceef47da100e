import numpy as np

from .journal import Journal

JOURNAL = None


def open_journal(path):
    global JOURNAL
    JOURNAL = Journal(path)
    return JOURNAL


def embed_document(doc_id, n_chunks=40, dim=128):
    rng = np.random.default_rng(doc_id)
    proj = rng.standard_normal((dim, dim)).astype(np.float32)
    vecs = []
    for _ in range(n_chunks):
        x = rng.standard_normal(dim).astype(np.float32)
        for _ in range(8):
            x = np.tanh(proj @ x / np.sqrt(dim))
        vecs.append(x)
    JOURNAL.record(event="embedded", doc=doc_id, chunks=n_chunks)
    return doc_id, np.stack(vecs).mean(axis=0)
