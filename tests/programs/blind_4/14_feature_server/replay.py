import asyncio
import sys

import aiohttp


async def user_session(client, base, first, last):
    for n in range(first, last):
        async with client.get(f"{base}/features/user{n}") as resp:
            await resp.json()
        await asyncio.sleep(0.02)


async def main(port, total):
    base = f"http://127.0.0.1:{port}"
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        async with client.get(f"{base}/features/warmup") as resp:
            print("warm-up:", await resp.json(), flush=True)
        step = total // 4
        await asyncio.gather(*(user_session(client, base, i * step, (i + 1) * step) for i in range(4)))
    print("replay finished", flush=True)


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
