import collections
import json
import logging
import os
import time

from baton import Baton

log = logging.getLogger("tokenise")


class VocabCache:
    def __init__(self, root):
        self.root = root
        self.loaded = {}

    def get(self, language, corpus):
        if language in self.loaded:
            return self.loaded[language]
        target = os.path.join(self.root, f"{language}.json")
        while not os.path.exists(target):
            baton = Baton(os.path.join(self.root, f"{language}.lock"))
            if baton.try_acquire():
                vocab = self._build(language, corpus)
                with open(target + ".tmp", "w") as f:
                    json.dump(vocab, f)
                os.replace(target + ".tmp", target)
                baton.release()
            else:
                baton.wait()
        with open(target) as f:
            self.loaded[language] = json.load(f)
        return self.loaded[language]

    def _build(self, language, corpus):
        log.info("building vocabulary for %s", language)
        counts = collections.Counter()
        for n, line in enumerate(corpus.lines(language)):
            record = json.loads(line)
            counts.update(record["text"].split())
            if n % 100 == 0:
                time.sleep(0.02)
        return {w: i for i, (w, _) in enumerate(counts.most_common(5000))}


class Tokeniser:
    def __init__(self, cache, corpus):
        self.cache = cache
        self.corpus = corpus

    def encode_shard(self, language, shard):
        vocab = self.cache.get(language, self.corpus)
        total = 0
        for line in self.corpus.shard(language, shard):
            words = json.loads(line)["text"].split()
            total += sum(1 for w in words if w in vocab)
            time.sleep(0.001)
        return total
