import struct

import numpy as np


class IndexedDatasetBuilder:
    """Appends token arrays to a .bin file and keeps sizes and document borders for the .idx file."""

    def __init__(self, prefix, dtype=np.uint16):
        self.prefix = str(prefix)
        self.dtype = dtype
        self.data = open(self.prefix + ".bin", "wb")
        self.sizes = []
        self.doc_idx = [0]

    def add_item(self, ids):
        array = np.asarray(ids, dtype=self.dtype)
        self.data.write(array.tobytes(order="C"))
        self.sizes.append(array.size)

    def end_document(self):
        self.doc_idx.append(len(self.sizes))

    def finalize(self):
        self.data.close()
        with open(self.prefix + ".idx", "wb") as f:
            f.write(b"IDX\x00\x00" + struct.pack("<QQ", len(self.sizes), len(self.doc_idx)))
            f.write(np.asarray(self.sizes, dtype=np.int32).tobytes())
            f.write(np.asarray(self.doc_idx, dtype=np.int64).tobytes())
