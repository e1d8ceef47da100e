"""Raw channel readers: each sensor log is streamed by its own process."""
import struct
import zlib

import numpy as np

HEADER = struct.Struct("<IHH")


def stream_channel(seed, sweeps, points, out):
    rng = np.random.default_rng(seed)
    for i in range(sweeps):
        n = int(points + rng.integers(-20, 20))
        cloud = rng.standard_normal((n, 4)).astype(np.float32)
        body = zlib.compress(cloud.tobytes(), 1)
        declared = n
        if rng.random() < 0.01 and i > 20 or i == 60 + seed:
            body = zlib.compress(cloud.tobytes()[: n * 16 - 24], 1)
        out.put(HEADER.pack(i, seed, declared) + body)
    out.put(None)


def decode(blob):
    index, channel, n = HEADER.unpack_from(blob)
    raw = np.frombuffer(zlib.decompress(blob[HEADER.size :]), dtype=np.float32)
    return index, channel, raw.reshape(n, 4)


def merged(queues):
    live = list(queues)
    while live:
        for q in list(live):
            blob = q.get()
            if blob is None:
                live.remove(q)
                continue
            yield decode(blob)
