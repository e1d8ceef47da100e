"""Process pool on pipes only (no /dev/shm, as inside a serverless function)."""
import multiprocessing as mp


class Child:
    def __init__(self, idx):
        self.conn, child_conn = mp.Pipe()
        self.proc = mp.Process(target=self._loop, args=(child_conn,), name=f"child-{idx}", daemon=True)
        self.proc.start()
        child_conn.close()
        self.outstanding = 0

    @staticmethod
    def _loop(conn):
        while True:
            job = conn.recv()
            if job is None:
                return
            fn, arg = job
            try:
                conn.send(("ok", fn(arg)))
            except Exception as e:  # noqa: BLE001
                conn.send(("err", repr(e)))

    def submit(self, fn, arg):
        self.conn.send((fn, arg))
        self.outstanding += 1

    def result(self):
        status, val = self.conn.recv()
        self.outstanding -= 1
        if status == "err":
            raise RuntimeError(val)
        return val


class Pool:
    def __init__(self, n):
        self.children = [Child(i) for i in range(n)]

    def map(self, fn, items):
        order = []
        for i, it in enumerate(items):
            c = self.children[i % len(self.children)]
            c.submit(fn, it)
            order.append(c)
        return [c.result() for c in order]
