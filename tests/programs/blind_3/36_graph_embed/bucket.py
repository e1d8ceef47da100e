import torch

def train_bucket(rank, emb, num_threads, done, buckets=2000, batch=1000):
    torch.set_num_threads(num_threads)
    g = torch.Generator().manual_seed(rank)
    for b in range(buckets):
        for _ in range(10):
            src = torch.randint(len(emb), (batch,), generator=g)
            dst = torch.randint(len(emb), (batch,), generator=g)
            scores = emb[src] @ emb[dst].t()
            grad = torch.softmax(scores, 1)
            emb[src] -= 1e-4 * (grad @ emb[dst])
        done.put(10 * batch)
