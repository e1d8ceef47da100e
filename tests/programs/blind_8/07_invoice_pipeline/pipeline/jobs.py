import random


class JobSource:
    def __init__(self, seed=5):
        self.rng = random.Random(seed)

    def __iter__(self):
        n = 0
        while True:
            n += 1
            lines = [{"sku": self.rng.randint(1, 999), "net": self.rng.uniform(1, 80)} for _ in range(self.rng.randint(1, 9))]
            currency = "EUR" if n % 76 else None
            yield {"id": n, "lines": lines, "currency": currency}
