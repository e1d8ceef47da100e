"""Token windows out of a corpus that is stored domain by domain in blocks of documents."""
import torch

LAYOUT = [
    # documents, domains mixed in this block
    (72, (0, 1, 2, 3)),
    (40, (0, 1)),
    (96, (0, 1, 2, 3)),
    (40, (2, 3)),
]


class BlockCorpus:
    def __init__(self, vocab, rank, batch_docs, doc_len, seed=5):
        self.vocab, self.rank, self.batch_docs, self.doc_len = vocab, rank, batch_docs, doc_len
        self.gen = torch.Generator().manual_seed(seed + rank)

    def __iter__(self):
        while True:
            for documents, domains in LAYOUT:
                for _ in range(documents // self.batch_docs):
                    pick = torch.randint(0, len(domains), (self.batch_docs,), generator=self.gen)
                    doc_domains = torch.tensor(domains)[pick]
                    tokens = torch.randint(0, self.vocab // 4, (self.batch_docs, self.doc_len), generator=self.gen)
                    tokens = tokens + doc_domains.unsqueeze(1) * (self.vocab // 4)
                    yield tokens, doc_domains
