import random
import string


class PostFeed:
    """Makes up posts: common words, plus the links, handles and typos that real posts are full of."""

    def __init__(self, vocabulary, seed):
        self.rng = random.Random(seed)
        self.words = [f"w{i}" for i in range(vocabulary)]

    def _handle(self):
        return "@" + "".join(self.rng.choices(string.ascii_lowercase, k=8))

    def _link(self):
        return "https://t.example/" + "".join(self.rng.choices(string.ascii_letters + string.digits, k=10))

    def _typo(self, word):
        return word + self.rng.choice(string.ascii_lowercase) + str(self.rng.randint(0, 10 ** 6))

    def post(self):
        n = self.rng.randint(8, 18)
        words = [self.words[int(self.rng.paretovariate(1.1)) % len(self.words)] for _ in range(n)]
        words.append(self._handle())
        words.append(self._link())
        for _ in range(self.rng.randint(3, 6)):
            words.append(self._typo(self.rng.choice(self.words)))
        self.rng.shuffle(words)
        return " ".join(words)

    def take(self, n):
        return [self.post() for _ in range(n)]
