"""Paged key/value cache bookkeeping."""
from collections import deque


class BlockPool:
    """Hands out fixed-size cache blocks. Block 0 is the null block used for padding."""

    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        self.free = deque(range(1, num_blocks))

    @property
    def usage(self) -> float:
        usable = self.num_blocks - 1
        return 1.0 - len(self.free) / usable

    def take(self, n: int):
        return [self.free.popleft() for _ in range(n)]

    def give_back(self, blocks):
        self.free.extend(blocks)


class KVCacheManager:
    def __init__(self, num_blocks: int, block_size: int):
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.tables = {}

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def allocate_slots(self, request_id: str, num_tokens: int):
        table = self.tables.setdefault(request_id, [])
        missing = self.blocks_for(num_tokens) - len(table)
        if missing <= 0:
            return table
        if missing > len(self.pool.free):
            return None
        table.extend(self.pool.take(missing))
        return table

    def free(self, request_id: str):
        self.pool.give_back(self.tables.pop(request_id, []))
