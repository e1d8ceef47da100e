"""Caption records with hard negatives, kept in memory."""
import logging
import random
import time

import torch
from torch.utils.data import Dataset

log = logging.getLogger(__name__)

WORDS = (
    "a an the man woman child dog cat red blue green small large old young sitting standing running "
    "on under near with without street house tree river beach snow car bus bicycle train table chair "
    "holding wearing looking playing eating two three several many front behind left right morning night"
).split()


def load_records(n, seed):
    """Stands for reading the annotation files of the shards."""
    rng = random.Random(seed)
    phrases = [" ".join(rng.choices(WORDS, k=12)) for _ in range(5000)]
    records = []
    for i in range(n):
        caption = f"{rng.choice(phrases)} and {rng.choice(phrases)} near {rng.choice(phrases)}"
        records.append(
            {
                "id": f"img-{i:09d}",
                "path": f"/datasets/captions/train/{i % 1000:03d}/{i:09d}.jpg",
                "caption": caption,
                "lang": rng.choice(("en", "de", "fr")),
                "score": rng.random(),
                "size": [200 + i % 1800, 200 + i % 1500],
            }
        )
    return records


class Vocabulary:
    def __init__(self, words):
        self.index = {w: i + 1 for i, w in enumerate(dict.fromkeys(words))}

    def __len__(self):
        return len(self.index) + 1

    def encode(self, text, length=24):
        ids = [self.index.get(w, 0) for w in text.split()][:length]
        return ids + [0] * (length - len(ids))


class CaptionDataset(Dataset):
    def __init__(self, records, vocab, negatives=2, read_s=0.008):
        self.records = records
        self.vocab = vocab
        self.negatives = negatives
        self.read_s = read_s

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        rec = self.records[i]
        time.sleep(self.read_s)  # stands for reading the image
        rows = [self.vocab.encode(rec["caption"])]
        w, h = rec["size"]
        for _ in range(self.negatives):
            other = self.records[random.randrange(len(self.records))]
            rows.append(self.vocab.encode(other["caption"]))
        return torch.tensor(rows), torch.tensor([w / 2000, h / 2000, rec["score"]])
