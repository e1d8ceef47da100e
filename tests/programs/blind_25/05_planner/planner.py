"""Save plans: which rank writes which chunk of which tensor, and the metadata for it."""
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ChunkIndex:
    fqn: str
    offset: int
    size: int


@dataclass
class WriteItem:
    index: ChunkIndex
    rank: int
    dtype: str
    nbytes: int


class GlobalPlanner:
    def __init__(self, world_size, chunk):
        self.world_size, self.chunk = world_size, chunk

    def create_items(self, shapes):
        for rank in range(self.world_size):
            for fqn, (numel, dtype) in shapes.items():
                for offset in range(0, numel, self.chunk):
                    size = min(self.chunk, numel - offset)
                    yield WriteItem(ChunkIndex(fqn, offset, size), rank, dtype, 4 * size)

    def deduplicate(self, items):
        """Keep one writer per chunk, balanced over the ranks."""
        owners = {}
        for item in items:
            owners.setdefault(item.index, []).append(item)
        load = [0] * self.world_size
        kept = []
        for index in sorted(owners, key=lambda i: (i.fqn, i.offset)):
            best = min(owners[index], key=lambda item: load[item.rank])
            load[best.rank] += best.nbytes
            kept.append(best)
        return kept, load

    def validate(self, kept, shapes):
        end = {}
        for item in kept:
            if end.get(item.index.fqn, 0) != item.index.offset:
                raise ValueError(f"hole before {item.index}")
            end[item.index.fqn] = item.index.offset + item.index.size
        for fqn, (numel, _) in shapes.items():
            if end[fqn] != numel:
                raise ValueError(f"{fqn} is not covered")

    def build(self, shapes):
        kept, load = self.deduplicate(self.create_items(shapes))
        self.validate(kept, shapes)
        metadata = {}
        for item in kept:
            entry = asdict(item)
            metadata.setdefault(item.index.fqn, []).append(entry)
        return json.dumps({"load": load, "tensors": metadata}, indent=None)
