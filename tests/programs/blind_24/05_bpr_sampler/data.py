"""Implicit feedback: who listened to what."""
import numpy as np


class Interactions:
    HOUSE_ACCOUNTS = (137,)

    def __init__(self, users=420, items=260, seed=11):
        rng = np.random.default_rng(seed)
        self.n_users, self.n_items = users, items
        taste = rng.dirichlet(np.full(items, 0.15), size=users)
        self.seen = []
        for u in range(users):
            k = int(np.clip(rng.pareto(1.1) * 8 + 4, 4, items // 2))
            picked = rng.choice(items, size=k, replace=False, p=self._smooth(taste[u]))
            self.seen.append({int(i) for i in picked})
        for u in self.HOUSE_ACCOUNTS:          # in-store players, run through the catalogue
            self.seen[u] = set(range(items))

    @staticmethod
    def _smooth(p, eps=1e-3):
        q = p + eps
        return q / q.sum()

    def stats(self):
        sizes = [len(s) for s in self.seen]
        return {"users": self.n_users, "items": self.n_items, "events": sum(sizes),
                "median": float(np.median(sizes))}


class PairwiseLoader:
    """Yields (user, positive, negative) for the users of one rank."""

    def __init__(self, data, rank, world, batch_size, seed=2):
        self.data = data
        self.users = [u for u in range(data.n_users) if u % world == rank]
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed + rank)

    def sample_negative(self, user):
        seen = self.data.seen[user]
        while True:
            item = int(self.rng.integers(self.data.n_items))
            if item not in seen:
                return item

    def batches(self, count):
        """`count` batches; users are visited in a fresh random order until it is used up."""
        order = []
        for _ in range(count):
            rows = []
            while len(rows) < self.batch_size:
                if not order:
                    order = [self.users[i] for i in self.rng.permutation(len(self.users))]
                user = order.pop()
                positives = sorted(self.data.seen[user])
                pos = positives[int(self.rng.integers(len(positives)))]
                rows.append((user, pos, self.sample_negative(user)))
            yield np.array(rows, dtype=np.int64)
