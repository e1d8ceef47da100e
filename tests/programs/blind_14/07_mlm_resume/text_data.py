"""Line by line text with tokenization on the fly, and the collator for masked language modelling."""
import re

import torch
from torch.utils.data import Dataset

WORDS = ("il comune ha approvato la delibera sul piano delle opere pubbliche per il triennio e la giunta "
         "si riserva di valutare entro l'anno le osservazioni presentate dai cittadini residenti").split()


class BpeTokenizer:
    """Greedy merges over characters, in Python."""

    def __init__(self, vocab_size=8000):
        self.vocab_size = vocab_size
        self.pattern = re.compile(r"\w+|[^\w\s]")
        self.ranks = {}
        for word in WORDS:
            for i in range(len(word) - 1):
                self.ranks.setdefault((word[i], word[i + 1]), len(self.ranks))
            for i in range(len(word) - 2):
                self.ranks.setdefault((word[i:i + 2], word[i + 2]), len(self.ranks))

    def _bpe(self, word):
        parts = list(word)
        while len(parts) > 1:
            pairs = [(self.ranks.get((a, b), 1 << 30), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
            rank, i = min(pairs)
            if rank == 1 << 30:
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return parts

    def __call__(self, line, max_length):
        ids = [0]
        for word in self.pattern.findall(line.lower()):
            for part in self._bpe(word):
                ids.append(4 + sum(ord(c) * 31 ** k for k, c in enumerate(part)) % (self.vocab_size - 4))
        return ids[: max_length - 1] + [2]


class LineByLineTextDataset(Dataset):
    def __init__(self, tokenizer, lines, block_size):
        self.tokenizer = tokenizer
        self.num_lines = lines
        self.block_size = block_size

    def __len__(self):
        return self.num_lines

    def __getitem__(self, i):
        words = [WORDS[(i * 7 + k * (1 + i % 11)) % len(WORDS)] for k in range(60 + i % 60)]
        return self.tokenizer(" ".join(words), self.block_size)


class DataCollatorForMLM:
    def __init__(self, vocab_size, probability=0.15):
        self.vocab_size = vocab_size
        self.probability = probability

    def __call__(self, examples):
        width = max(map(len, examples))
        ids = torch.tensor([e + [1] * (width - len(e)) for e in examples])
        labels = ids.clone()
        masked = torch.bernoulli(torch.full(labels.shape, self.probability)).bool() & (ids > 3)
        labels[~masked] = -100
        ids[masked] = 3
        return {"input_ids": ids, "labels": labels}
