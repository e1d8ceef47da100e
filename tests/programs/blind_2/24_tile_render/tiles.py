import math


class TileError(Exception):
    def __init__(self, tile, reason):
        super().__init__(f"tile {tile.z}/{tile.x}/{tile.y}: {reason}")
        self.tile = tile


class Tile:
    def __init__(self, z, x, y):
        self.z, self.x, self.y = z, x, y

    def bounds(self):
        n = 2 ** self.z
        lon = self.x / n * 360 - 180
        lat = math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * self.y / n))))
        return lon, lat


def render(tile, size=96):
    lon, lat = tile.bounds()
    if tile.x == 11 and tile.y == 9:
        raise TileError(tile, "coastline polygon is not closed")
    acc = 0.0
    for i in range(size):
        for j in range(size):
            acc += math.sin(lon + i / size) * math.cos(lat + j / size)
    return tile.x, tile.y, acc / size**2
