"""A ticket archive: old tickets are plain text, those of the new help desk carry their screenshots inline."""
import base64
import random
from dataclasses import dataclass

WORDS = ("the device shows a red light after the update and will not pair with my phone please advise "
         "order invoice refund shipment delayed again since monday firmware restart adapter").split()


@dataclass
class Ticket:
    number: int
    source: str
    body: str


class Archive:
    def __init__(self, legacy: int, total: int, image_bytes: int, seed: int):
        self.legacy, self.total, self.image_bytes = legacy, total, image_bytes
        self.seed = seed

    def _sentence(self, rng: random.Random) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(8, 20))) + "."

    def _text(self, rng: random.Random) -> str:
        parts = [self._sentence(rng) for _ in range(rng.randint(6, 14))]
        parts.insert(rng.randrange(len(parts)), f"Write to {rng.choice(WORDS)}.{rng.choice(WORDS)}@example.org")
        if rng.random() < 0.4:
            parts.append(f"Call +44 20 {rng.randrange(10 ** 6, 10 ** 7)}, account AC-{rng.randrange(10 ** 7, 10 ** 8)}")
        return " ".join(parts)

    def __iter__(self):
        rng = random.Random(self.seed)
        for number in range(self.total):
            body = self._text(rng)
            source = "legacy"
            if number >= self.legacy:
                source = "helpdesk"
                size = int(self.image_bytes * rng.uniform(0.7, 1.3))
                image = base64.b64encode(rng.randbytes(size)).decode()
                body += f" <img src=data:image/png;base64,{image}>"
            yield Ticket(number, source, body)
