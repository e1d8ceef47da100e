"""Single controller: remote calls on a group of workers, data split by data-parallel rank."""
import logging
import multiprocessing as mp

logger = logging.getLogger("worker_group")


def dispatch_megatron_compute(worker_group, data):
    chunks = data.chunk(worker_group.dp_size)
    return [chunks[rank // worker_group.mp_size] for rank in range(worker_group.world_size)]


def collect_megatron_compute(worker_group, outputs):
    return [outputs[dp * worker_group.mp_size] for dp in range(worker_group.dp_size)]


def _worker_loop(worker_cls, rank, mp_size, connection):
    worker = worker_cls(rank, mp_size)
    while True:
        call = connection.recv()
        if call is None:
            break
        method, args = call
        connection.send(getattr(worker, method)(*args))


class MegatronWorkerGroup:
    def __init__(self, worker_cls, dp_size, mp_size):
        self.dp_size, self.mp_size, self.world_size = dp_size, mp_size, dp_size * mp_size
        ctx = mp.get_context("fork")
        self.connections, self.workers = [], []
        for rank in range(self.world_size):
            parent, child = ctx.Pipe()
            worker = ctx.Process(target=_worker_loop, args=(worker_cls, rank, mp_size, child), name=f"WorkerDict_{rank}")
            worker.start()
            child.close()
            self.connections.append(parent)
            self.workers.append(worker)

    def execute_all(self, method, data):
        args = dispatch_megatron_compute(self, data)
        for connection, arg in zip(self.connections, args):
            connection.send((method, (arg,)))
        return collect_megatron_compute(self, [c.recv() for c in self.connections])
