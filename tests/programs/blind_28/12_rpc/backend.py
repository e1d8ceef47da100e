"""The model process behind the channel."""
import asyncio
import logging

import torch
from torch import nn

from channel import RpcChannel

log = logging.getLogger("backend")


class Ranker:
    def __init__(self, features: int):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
        self.scored = 0

    async def score(self, rows):
        with torch.inference_mode():
            scores = self.net(torch.from_numpy(rows)).squeeze(1)
        self.scored += len(rows)
        return scores.numpy()

    async def stats(self):
        return {"scored": self.scored}


async def serve(features: int, ready):
    ranker = Ranker(features)

    async def connected(reader, writer):
        log.info("channel opened")
        await RpcChannel(reader, writer, {"score": ranker.score, "stats": ranker.stats}).serve()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname())
    await server.serve_forever()


def run_backend(features: int, ready):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    asyncio.run(serve(features, ready))
