import struct


class Storage:
    """Append-only tile store."""

    def __init__(self, path):
        self._file = open(path, "wb", buffering=1 << 20)

    def put(self, tile, data):
        self._file.write(struct.pack(">BIII", tile.zoom, tile.x, tile.y, len(data)))
        self._file.write(data)

    def close(self):
        self._file.close()
