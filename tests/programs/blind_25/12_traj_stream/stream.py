"""Objects over a socket, one after the other."""
import pickle
import socket


class ObjectStream:
    def __init__(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._out = sock.makefile("wb", buffering=1 << 16)
        self._in = sock.makefile("rb", buffering=1 << 16)
        self._pickler = pickle.Pickler(self._out, protocol=5)
        self._unpickler = pickle.Unpickler(self._in)

    def send(self, obj):
        self._pickler.dump(obj)
        self._out.flush()

    def recv(self):
        return self._unpickler.load()

    def close(self):
        for f in (self._out, self._in, self.sock):
            try:
                f.close()
            except OSError:
                pass


def connect(port):
    return ObjectStream(socket.create_connection(("127.0.0.1", port)))
