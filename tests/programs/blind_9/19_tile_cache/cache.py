import collections


class TileCache:
    """Least recently used tiles up to a fixed number of bytes."""

    def __init__(self, limit_bytes):
        self.limit = limit_bytes
        self.size = 0
        self.tiles = collections.OrderedDict()
        self.hits = self.misses = self.evicted = 0

    def get(self, key, load):
        if key in self.tiles:
            self.hits += 1
            self.tiles.move_to_end(key)
            return self.tiles[key]
        self.misses += 1
        tile = load(key)
        self.tiles[key] = tile
        self.size += tile.nbytes
        while self.size > self.limit:
            _, old = self.tiles.popitem(last=False)
            self.size -= old.nbytes
            self.evicted += 1
        return tile
