"""Pages as they come from a crawl (made here from a word list)."""
import numpy as np

WORDS = ("market river engine window letter garden copper signal forest bridge student kernel island budget morning travel "
         "harbor planet number report winter village doctor museum ticket battery").split()


class Crawl:
    def __init__(self, pages, seed, listing_at):
        self.pages = pages
        self.seed = seed
        self.listing_at = listing_at

    def page(self, index):
        rng = np.random.default_rng((self.seed, index))
        if index == self.listing_at:
            return self._listing(rng)
        lines = []
        for _ in range(int(rng.integers(20, 160))):
            line = " ".join(rng.choice(WORDS, size=int(rng.integers(4, 18))))
            lines.append(line + " " * int(rng.integers(0, 5)))
            if rng.random() < 0.1:
                lines.append("* see https://example.org/" + str(rng.integers(1e6)))
        return "\n".join(lines)

    def _listing(self, rng):
        """A page out of a text-mode terminal capture: its columns are padded with blanks."""
        left = " ".join(rng.choice(WORDS, size=12))
        return left + " " * 120_000 + "page 1 of 1\n" + left
