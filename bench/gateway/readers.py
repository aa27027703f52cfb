"""What open pages cost a gateway: its CPU with and without readers of its feed, in turns, on a mesh that runs.

``python -m bench.gateway.readers deploy/topology.toml --readers 10`` while something sends it requests.
"""

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import psutil

from bench.harness.arguments import script_parser
from bench.harness.tables import print_table
from mesh.cli.cluster import statuses_of
from mesh.report import report
from mesh.topology.parse import load

SETTLE_S = 1.0


async def share_of_cpu(process: psutil.Process, url: str, num_readers: int, seconds: float) -> float:
    """Return the share of one core that the process used, while so many read its feed."""
    async with AsyncExitStack() as stack, httpx.AsyncClient(timeout=None, trust_env=False) as client:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        readers = [tasks.create_task(_read(client, f"{url}/mesh/feed")) for _ in range(num_readers)]
        await asyncio.sleep(SETTLE_S)
        began, used = time.monotonic(), sum(process.cpu_times()[:2])
        await asyncio.sleep(seconds)
        share = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - began)
        for reader in readers:
            reader.cancel()
    return float(share)


async def _read(client: httpx.AsyncClient, url: str) -> None:
    async with client.stream("GET", url) as response:
        async for _ in response.aiter_raw():
            pass


def main() -> None:
    parser = script_parser("bench.gateway.readers", __doc__)
    parser.add_argument("topology", type=Path)
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    topology = load(options.topology)
    gateway = report(topology, asyncio.run(statuses_of(topology)))["gateways"][0]
    if gateway["admin_url"] is None:
        parser.error(f"{options.topology}: its first gateway does not run; start it with `mesh up`")
    process, shares = psutil.Process(gateway["pid"]), dict[int, list[float]]()
    for num_readers in (0, options.readers) * options.rounds:
        share = asyncio.run(share_of_cpu(process, gateway["admin_url"], num_readers, options.seconds))
        shares.setdefault(num_readers, []).append(share)
    rows = [
        (str(count), *(f"{100 * share:.2f}" for share in (statistics.median(found), min(found), max(found))))
        for count, found in shares.items()
    ]
    print_table(f"CPU of {gateway['id']}, % of a core", (), ("readers", "median", "least", "most"), rows)


if __name__ == "__main__":
    main()
