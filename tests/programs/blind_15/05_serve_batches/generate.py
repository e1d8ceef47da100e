import torch


class BatchGenerator:
    """Keeps the sequences in flight and advances all of them by one token per step."""

    def __init__(self, model, max_tokens):
        self.model = model
        self.max_tokens = max_tokens
        self.active = {}
        self.next_uid = 0

    def insert(self, tokens):
        uid = self.next_uid
        self.next_uid += 1
        self.active[uid] = {"tokens": list(tokens), "new": []}
        return uid

    @torch.no_grad()
    def step(self):
        finished = []
        for uid, seq in list(self.active.items()):
            token = int(self.model(torch.tensor([seq["tokens"][-64:]])).argmax())
            seq["tokens"].append(token)
            seq["new"].append(token)
            if len(seq["new"]) >= self.max_tokens:
                finished.append((uid, seq["new"]))
                del self.active[uid]
        return finished
