import random

import torch
from torch.utils.data import Dataset


class MathQA(Dataset):
    """Question/answer records kept in memory, with provenance for the report."""

    def __init__(self, records, vocab, length, seed):
        rng = random.Random(seed)
        self.length = length
        self.rows = []
        for i in range(records):
            prompt = [rng.randrange(vocab) for _ in range(6)]
            self.rows.append({
                "id": i,
                "prompt": prompt,
                "answer": [prompt[0], prompt[-1]],
                "meta": {"source": "gsm" if i % 3 else "math", "span": [i, i + 6]},
            })

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        tokens = (row["prompt"] + row["answer"]) * (self.length // 8)
        return torch.tensor(tokens)
