import html
import json
import re

TAG = re.compile(r"<[^>]+>")
TOKEN = re.compile(r"\w+|[^\w\s]")


class Encoder:
    """Cleans one JSON line and turns its text into token ids with a small byte-pair vocabulary."""

    vocab = None
    pairs = None

    def __init__(self, append_eod, merges):
        self.append_eod = append_eod
        self.merges = merges

    def initializer(self):
        Encoder.vocab = {bytes([b]): b for b in range(256)}
        Encoder.vocab[b"<eod>"] = 256
        common = ["th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te", "of", "ed"]
        Encoder.pairs = {(p[0], p[1]): 257 + i for i, p in enumerate(common[: self.merges])}

    def clean(self, text):
        return html.unescape(TAG.sub(" ", text)).replace("\xa0", " ").strip()

    def word_ids(self, word):
        symbols = list(word)
        for (left, right), new_id in Encoder.pairs.items():
            out, i = [], 0
            while i < len(symbols):
                if i + 1 < len(symbols) and symbols[i] == left and symbols[i + 1] == right:
                    out.append(new_id)
                    i += 2
                else:
                    out.append(symbols[i])
                    i += 1
            symbols = out
        return [s if isinstance(s, int) else ord(s) % 256 for s in symbols]

    def encode(self, line):
        text = self.clean(json.loads(line)["text"])
        ids = []
        for word in TOKEN.findall(text):
            ids.extend(self.word_ids(word))
        if ids and self.append_eod:
            ids.append(256)
        return ids, len(line)
