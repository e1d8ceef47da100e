"""Minimal task runtime: one scheduler (driver thread), N worker processes, an object table."""
import importlib
import itertools
import multiprocessing as mp
import threading
from collections import deque
from multiprocessing.connection import wait

_runtime = None
_link = None


class ObjectRef:
    def __init__(self, oid):
        self.oid = oid


class RemoteFunction:
    def __init__(self, function):
        self.key = (function.__module__, function.__name__)
        self.function = function

    def remote(self, *args):
        if _link is not None:
            _link.send(("submit", self.key, args))
            return ObjectRef(_link.recv())
        return ObjectRef(_runtime.submit(self.key, args))


def remote(function):
    return RemoteFunction(function)


def get(refs):
    if isinstance(refs, (list, tuple)):
        return [get(r) for r in refs]
    if _link is not None:
        _link.send(("get", refs.oid))
        return _link.recv()
    return _runtime.fetch(refs.oid)


def _worker_main(link):
    global _link
    _link = link
    while True:
        task = link.recv()
        if task is None:
            break
        oid, (module, name), args = task
        result = getattr(importlib.import_module(module), name).function(*args)
        link.send(("done", oid, result))


class Runtime:
    def __init__(self, num_workers):
        self.ids = itertools.count()
        self.lock = threading.Condition()
        self.pending = deque()
        self.objects = {}
        self.waiting = {}
        self.links, self.idle, self.procs = [], deque(), []
        ctx = mp.get_context("fork")
        for i in range(num_workers):
            ours, theirs = ctx.Pipe()
            p = ctx.Process(target=_worker_main, args=(theirs,), name=f"worker-{i}", daemon=True)
            p.start()
            self.links.append(ours)
            self.idle.append(ours)
            self.procs.append(p)
        threading.Thread(target=self._schedule, name="scheduler", daemon=True).start()

    def submit(self, key, args):
        with self.lock:
            oid = next(self.ids)
            self.pending.append((oid, key, args))
            self._dispatch()
        return oid

    def fetch(self, oid):
        with self.lock:
            while oid not in self.objects:
                self.lock.wait()
            return self.objects[oid]

    def _dispatch(self):
        while self.pending and self.idle:
            self.idle.popleft().send(self.pending.popleft())

    def _schedule(self):
        while True:
            for link in wait(self.links):
                message = link.recv()
                with self.lock:
                    if message[0] == "submit":
                        oid = next(self.ids)
                        self.pending.append((oid, message[1], message[2]))
                        link.send(oid)
                    elif message[0] == "get":
                        if message[1] in self.objects:
                            link.send(self.objects[message[1]])
                        else:
                            self.waiting.setdefault(message[1], []).append(link)
                    else:
                        self.objects[message[1]] = message[2]
                        self.idle.append(link)
                        for other in self.waiting.pop(message[1], []):
                            other.send(message[2])
                        self.lock.notify_all()
                    self._dispatch()


def init(num_workers):
    global _runtime
    _runtime = Runtime(num_workers)


def shutdown():
    for link in _runtime.links:
        link.send(None)
    for p in _runtime.procs:
        p.join()
