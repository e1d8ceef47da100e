import random
from dataclasses import dataclass, field

import torch

WORDS = ("capital reserve quarter audit policy sensor valve torque clause tenant lease river basin enzyme "
         "protein vector index shard replica latency budget vendor invoice merger filing patent claim").split()


@dataclass(frozen=True)
class Chunk:
    id: int
    text: str


@dataclass
class Question:
    id: int
    text: str
    quotes: list = field(default_factory=list)
    source: int = 0


def build_chunks(n, words=160, seed=11):
    rng = random.Random(seed)
    chunks = []
    for i in range(n):
        parts = rng.choices(WORDS, k=words)
        for at in range(9, words, 17):
            parts[at] += rng.choice([",", ".", f" [{rng.randrange(40)}]", ";"])
        parts[words // 2] += f" docket-{i:06d}"
        chunks.append(Chunk(i, " ".join(parts).capitalize()))
    return chunks


def build_questions(n, n_chunks, seed=12):
    rng = random.Random(seed)
    questions = []
    for i in range(n):
        source, other = rng.randrange(n_chunks), rng.randrange(n_chunks)
        quotes = [f"Docket-{source:06d}", f"Docket-{other:06d}"]
        questions.append(Question(i, f"Which party signed exhibit {i}?", quotes, source))
    return questions


class VectorIndex:
    def __init__(self, n, dim=64):
        gen = torch.Generator().manual_seed(5)
        self.vectors = torch.nn.functional.normalize(torch.randn(n, dim, generator=gen), dim=1)

    def search(self, question, k):
        gen = torch.Generator().manual_seed(question.id)
        noise = torch.randn(self.vectors.shape[1], generator=gen) * 0.2
        query = self.vectors[question.source] + noise
        return (self.vectors @ query).topk(k).indices.tolist()
