"""An inference engine: loads its weights, waits to become the leader, then serves."""
import asyncio
import json
import logging
import os
import signal

import torch
from torch import nn

from failover_lock import FlockFailoverLock

log = logging.getLogger("engine")


class Engine:
    def __init__(self, engine_id, folder):
        self.engine_id = engine_id
        self.folder = folder
        self.lock = FlockFailoverLock(os.path.join(folder, "leader.lock"))
        self.model = None
        self.served = 0

    def load(self):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(),
                                   nn.Linear(1024, 32)).eval()

    async def handle(self, reader, writer):
        while line := await reader.readline():
            request = json.loads(line)
            g = torch.Generator().manual_seed(request["seed"])
            with torch.inference_mode():
                out = self.model(torch.randn(request["tokens"], 256, generator=g)).argmax(1)
            self.served += 1
            writer.write(json.dumps({"id": request["id"], "tokens": out.tolist()}).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def run(self):
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        self.load()
        log.info("%s loaded, waiting for the lock", self.engine_id)
        acquire = asyncio.ensure_future(self.lock.acquire(self.engine_id))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([acquire, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            acquire.cancel()
            log.info("%s was never needed", self.engine_id)
            return
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        endpoint = os.path.join(self.folder, "endpoint")
        with open(endpoint + ".new", "w") as f:
            f.write(str(server.sockets[0].getsockname()[1]))
        os.replace(endpoint + ".new", endpoint)
        log.info("%s is the leader", self.engine_id)
        await stopped
        server.close()
        await self.lock.release()
        log.info("%s served %d requests", self.engine_id, self.served)


def run_engine(engine_id, folder):
    asyncio.run(Engine(engine_id, folder).run())
