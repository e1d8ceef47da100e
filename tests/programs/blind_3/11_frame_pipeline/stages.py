from dataclasses import dataclass, field

import numpy as np


@dataclass
class Detection:
    box: tuple
    score: float
    attributes: dict = field(default_factory=dict)


@dataclass
class StreamData:
    index: int
    frame: list
    detections: list = field(default_factory=list)


def acquire(queue, height, width):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 255, (height, width, 3), dtype=np.uint8).tolist()
    index = 0
    while True:
        base[index % height][index % width] = [index % 255, 0, 0]
        queue.put(StreamData(index, base))
        index += 1


def infer(inq, outq):
    while True:
        data = inq.get()
        row = np.array(data.frame[data.index % len(data.frame)])
        data.detections.append(Detection((0, 0, 8, 8), float(row.mean() / 255), {"row": int(row.sum())}))
        outq.put(data)
