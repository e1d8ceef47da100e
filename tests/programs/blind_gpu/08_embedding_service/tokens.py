import zlib

VOCAB_SIZE = 8000


class HashTokenizer:
    """Maps words to ids by hash; a few added tokens have ids of their own."""

    def __init__(self, vocab_size=VOCAB_SIZE, added_tokens=("<cls>", "<sep>", "<url>", "<tool>")):
        self.vocab_size = vocab_size
        first = vocab_size - len(added_tokens) + 1
        self.added = {token: first + i for i, token in enumerate(added_tokens)}

    def encode(self, text, max_length=64):
        ids = [self.added["<cls>"]]
        for word in text.split():
            if word in self.added:
                ids.append(self.added[word])
            else:
                ids.append(zlib.crc32(word.encode()) % (self.vocab_size - len(self.added)))
        return ids[:max_length]
