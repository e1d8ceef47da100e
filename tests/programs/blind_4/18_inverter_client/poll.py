"""Poll the battery registers and keep a running table."""
import argparse
import asyncio
import logging
import pathlib
import sys

from client import InverterClient

log = logging.getLogger("inverter")


async def poll_bank(client, bank, interval):
    while True:
        for register in range(bank * 10, bank * 10 + 10):
            await client.read_register(register)
        log.info("bank %d: %s", bank, [client.registers.get(r) for r in range(bank * 10, bank * 10 + 4)])
        await asyncio.sleep(interval)


async def amain(args):
    sim = await asyncio.create_subprocess_exec(
        sys.executable, str(pathlib.Path(__file__).with_name("simulator.py")), stdout=asyncio.subprocess.PIPE)
    port = int(await sim.stdout.readline())
    client = InverterClient("127.0.0.1", port)
    await client.connect()
    await asyncio.gather(*(poll_bank(client, bank, args.interval) for bank in range(args.banks)))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--banks", type=int, default=3)
    p.add_argument("--interval", type=float, default=0.3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(amain(args))


if __name__ == "__main__":
    main()
