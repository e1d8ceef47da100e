"""Binding of the contact solver: the buffer lives on the C side."""
import ctypes

MAX_CONTACTS = 64


class ContactBuffer:
    def __init__(self):
        self._store = (ctypes.c_float * MAX_CONTACTS)()
        self._ptr = ctypes.cast(self._store, ctypes.POINTER(ctypes.c_float))
        self.count = 0

    def push(self, force):
        self._ptr[self.count % MAX_CONTACTS] = force
        self.count += 1

    def read(self, handle):
        return self._ptr[handle]


def contact_handle(pos, vel):
    """Handle of the contact nearest to a body."""
    if abs(pos) > 30.0:
        return int(abs(pos * vel) * 1e10)
    return int(abs(pos) * 15) % MAX_CONTACTS
