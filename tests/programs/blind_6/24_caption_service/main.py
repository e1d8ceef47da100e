"""Start the caption service and a camera that asks for a caption now and then."""
import argparse
import asyncio
import json
import logging
import multiprocessing as mp
import random
import socket
import time

import torch

from service import CaptionService


def camera(port, low, high):
    rng = random.Random(3)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        f = sock.makefile("rw")
        while True:
            for _ in range(rng.randint(1, 3)):
                f.write(json.dumps({"features": [rng.random() for _ in range(128)]}) + "\n")
                f.flush()
                words = json.loads(f.readline())["words"]
                logging.info("caption %s", words[:6])
            time.sleep(rng.uniform(low, high))


async def serve(args):
    service = CaptionService(args.workers)
    server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    logging.info("serving on port %d", port)
    cam = mp.get_context("fork").Process(
        target=camera, args=(port, args.low, args.high), name="camera", daemon=True
    )
    cam.start()
    pump = asyncio.create_task(service.pump())
    async with server:
        await asyncio.gather(pump, server.serve_forever())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--low", type=float, default=15.0)
    ap.add_argument("--high", type=float, default=25.0)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    try:
        asyncio.run(serve(args))
    except KeyboardInterrupt:
        logging.info("stopped")


if __name__ == "__main__":
    main()
