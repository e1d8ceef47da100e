"""Single producer, single consumer ring in shared memory."""
import struct
from multiprocessing import shared_memory

SLOT = struct.Struct("<QdIIdd")
INDEX = struct.Struct("<Q")
HEAD, TAIL, DATA = 0, 64, 128


class Ring:
    def __init__(self, slots: int, name: str | None = None):
        size = DATA + slots * SLOT.size
        self.slots = slots
        self.shm = shared_memory.SharedMemory(name=name, create=name is None, size=size)
        self.buf = self.shm.buf
        if name is None:
            INDEX.pack_into(self.buf, HEAD, 0)
            INDEX.pack_into(self.buf, TAIL, 0)

    @property
    def name(self) -> str:
        return self.shm.name

    def push(self, record: tuple) -> bool:
        head = INDEX.unpack_from(self.buf, HEAD)[0]
        tail = INDEX.unpack_from(self.buf, TAIL)[0]
        if head - tail >= self.slots:
            return False
        SLOT.pack_into(self.buf, DATA + (head % self.slots) * SLOT.size, *record)
        INDEX.pack_into(self.buf, HEAD, head + 1)
        return True

    def poll(self):
        tail = INDEX.unpack_from(self.buf, TAIL)[0]
        if tail == INDEX.unpack_from(self.buf, HEAD)[0]:
            return None
        record = SLOT.unpack_from(self.buf, DATA + (tail % self.slots) * SLOT.size)
        INDEX.pack_into(self.buf, TAIL, tail + 1)
        return record

    def close(self, unlink: bool = False) -> None:
        self.buf = None
        self.shm.close()
        if unlink:
            self.shm.unlink()
