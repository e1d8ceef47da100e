from multiprocessing import shared_memory

import numpy as np


def publish(frame):
    shm = shared_memory.SharedMemory(create=True, size=frame.nbytes)
    np.ndarray(frame.shape, frame.dtype, buffer=shm.buf)[:] = frame
    name = shm.name
    shm.close()
    return name, frame.shape, str(frame.dtype)


def attach(ref):
    name, shape, dtype = ref
    shm = shared_memory.SharedMemory(name=name)
    frame = np.ndarray(shape, dtype, buffer=shm.buf).copy()
    shm.close()
    return frame
