"""ctypes front end of the native crop kernel (here: the copy of libc)."""
import ctypes

import numpy as np

_libc = ctypes.CDLL(None)
_libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def crop_rows(image, top, rows):
    """Copy `rows` rows of the image, starting at `top`."""
    out = np.empty((rows, image.shape[1]), dtype=image.dtype)
    src = image.ctypes.data + top * image.strides[0]
    _libc.memcpy(out.ctypes.data, src, out.nbytes)
    return out
