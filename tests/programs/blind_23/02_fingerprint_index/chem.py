import hashlib
import random

ATOMS = ["C", "C", "C", "N", "O", "S", "F", "Cl", "P"]


class CompoundLibrary:
    """A library that makes up its compounds: one string per compound, the same for the same seed."""

    def __init__(self, size, seed):
        self.size = size
        self.seed = seed

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if not 0 <= i < self.size:
            raise IndexError(i)
        rng = random.Random(self.seed * 1_000_003 + i)
        parts = []
        for _ in range(rng.randint(12, 40)):
            atom = rng.choice(ATOMS)
            if rng.random() < 0.15:
                atom = f"({rng.choice('=-#')}{atom})"
            parts.append(atom)
        return "".join(parts)


def morgan_like_fingerprint(smiles, radius, bits):
    """Hashes every neighbourhood up to the radius; returns the sorted list of bits that are on."""
    on = set()
    n = len(smiles)
    for r in range(1, radius + 1):
        for i in range(n):
            env = smiles[max(0, i - r):i + r + 1]
            digest = hashlib.blake2b(f"{r}:{env}".encode(), digest_size=8).digest()
            on.add(int.from_bytes(digest, "little") % bits)
    return sorted(on)
