import random
import zlib

import torch
from torch.utils.data import Dataset

import lexer

WORDS = ("how do i call this from the main thread when the window is closed and the value "
         "of the list is not what the docs say it should be after an update of the package").split()
CODE = ["os.path.join", "df.groupby", "print()", "get_value()", "np.float32", "42", "3.14",
        "read_csv()", "self.model.eval", "x_train"]
DIGEST = "abcdefghijklmnopqrstuvwxyz0123456789"


class ForumPosts(Dataset):
    """Synthetic stand-in for the posts dump; labels are the forum tags."""

    def __init__(self, n, vocab, max_len, paste_rate, paste_len):
        self.n, self.vocab, self.max_len = n, vocab, max_len
        self.paste_rate, self.paste_len = paste_rate, paste_len

    def __len__(self):
        return self.n

    def text(self, index):
        rng = random.Random(index)
        parts = [rng.choice(WORDS) if rng.random() < 0.8 else rng.choice(CODE)
                 for _ in range(rng.randrange(40, 120))]
        if rng.random() < self.paste_rate:
            commit = "".join(rng.choice(DIGEST) for _ in range(self.paste_len))
            parts.insert(rng.randrange(len(parts)), commit + ":")
        return " ".join(parts)

    def __getitem__(self, index):
        tokens = lexer.lex(self.text(index))[: self.max_len]
        ids = [zlib.crc32(t.encode()) % self.vocab for t in tokens]
        ids += [0] * (self.max_len - len(ids))
        return torch.tensor(ids), index % 8
