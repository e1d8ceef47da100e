"""Feature service: GET /features/<user>. With --replay it also starts a client that replays traffic."""
import argparse
import asyncio
import logging
import pathlib
import sys

from aiohttp import web

from store import FeatureStore

log = logging.getLogger("features")


async def features(request):
    row = await request.app["store"].lookup(request.match_info["user"])
    request.app["served"] += 1
    return web.json_response(row)


async def report(app):
    while True:
        await asyncio.sleep(1)
        log.info("%d requests served", app["served"])


async def amain(args):
    app = web.Application()
    app["store"], app["served"] = FeatureStore(args.pool_size), 0
    app.router.add_get("/features/{user}", features)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", args.port)
    await site.start()
    port = runner.addresses[0][1]
    log.info("listening on %d", port)
    task = asyncio.create_task(report(app))
    if args.replay:
        client = await asyncio.create_subprocess_exec(
            sys.executable, str(pathlib.Path(__file__).with_name("replay.py")), str(port), str(args.replay))
        await client.wait()
        task.cancel()
        await runner.cleanup()
    else:
        await asyncio.Event().wait()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--pool-size", type=int, default=4)
    p.add_argument("--replay", type=int, default=400, metavar="N")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(amain(args))


if __name__ == "__main__":
    main()
