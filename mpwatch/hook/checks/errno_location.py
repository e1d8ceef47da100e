"""Where the C library has `errno`, for `lifecycle/fork.py` under Python 3.10."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def find() -> Any:
    """The function of the C library that says where `errno` of the calling thread is.

    `None` where it cannot be had: a refused fork may then be told with another reason.
    """
    try:
        import ctypes

        location = ctypes.CDLL(None).__errno_location
    except (ImportError, OSError, AttributeError):
        return None
    location.restype = ctypes.POINTER(ctypes.c_int)
    return location
