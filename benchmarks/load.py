"""A load generator for the daemon's Unix socket, in a process of its own; prints one JSON object.

    python benchmarks/load.py SOCKET PATH [--body JSON] [--clients 50] [--rate 1000] [--seconds 5]

Each client has one connection and sends its requests at their times, whether or not the ones before were answered late: a
latency counts from when the request was due, so that a daemon that stalls is charged for all that waited meanwhile. With
`--rate 0` each sends its next request when it has its answer: what the daemon can do at most.

Where NUMBER stands in the body each request has another number of six digits, so that no two are the same.

It writes bytes to sockets by itself: a client's library costs more than what is measured.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path


@dataclass
class Sent:
    """What came of all requests: milliseconds of those that were answered with 200, and what went wrong, by its kind."""

    milliseconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def main() -> None:
    options = arguments()
    begun = time.perf_counter()
    sent = asyncio.run(load(options))
    seconds = time.perf_counter() - begun
    print(json.dumps(summary(sent, seconds)))


def summary(sent: Sent, seconds: float) -> dict[str, object]:
    """Latencies in milliseconds; `rate`: answers a second."""
    taken = sorted(sent.milliseconds) or [float("nan")]
    shares = {name: round(taken[min(len(taken) * share // 1000, len(taken) - 1)], 2) for name, share in SHARES.items()}
    return {
        "answered": len(sent.milliseconds),
        "errors": dict(sent.errors),
        "rate": round(len(sent.milliseconds) / seconds, 1),
        **shares,
        "worst_ms": round(taken[-1], 2),
    }


NUMBER = b"NUMBER"
SHARES = {"p50_ms": 500, "p99_ms": 990}


async def load(options: argparse.Namespace) -> Sent:
    sent = Sent()
    request = Request(options.path, options.body)
    each = options.rate / options.clients
    begin = time.perf_counter() + 0.2
    if options.rate:
        due = [[begin + (number + client / options.clients) / each for number in range(round(each * options.seconds))]
               for client in range(options.clients)]  # fmt: skip
        await asyncio.gather(*(scheduled(options.socket, request, one, sent) for one in due))
    else:
        end = begin + options.seconds
        await asyncio.gather(*(unpaced(options.socket, request, begin, end, sent) for _ in range(options.clients)))
    return sent


class Request:
    """Makes the bytes of one request after the other. Runs of the generator begin at different numbers."""

    def __init__(self, path: str, body: str) -> None:
        data = body.encode()
        lines = [f"{'POST' if data else 'GET'} {path} HTTP/1.1", "Host: localhost"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"] if data else []
        self._begin, self._number, self._end = ("\r\n".join([*lines, "", ""]).encode() + data).partition(NUMBER)
        self._numbers = count(random.randrange(100_000, 800_000))

    def next(self) -> bytes:
        return self._begin + b"%06d" % next(self._numbers) + self._end if self._number else self._begin


async def scheduled(socket: Path, request: Request, due: Sequence[float], sent: Sent) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    for moment in due:
        if (wait := moment - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        await once(reader, writer, request, moment, sent)
    writer.close()


async def unpaced(socket: Path, request: Request, begin: float, end: float, sent: Sent) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    await asyncio.sleep(begin - time.perf_counter())
    while time.perf_counter() < end:
        await once(reader, writer, request, time.perf_counter(), sent)
    writer.close()


async def once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request, due: float, sent: Sent
) -> None:
    try:
        writer.write(request.next())
        status = await answered(reader)
    except (OSError, asyncio.IncompleteReadError) as error:
        sent.errors[type(error).__name__] += 1
        return
    if status == 200:
        sent.milliseconds.append(1000 * (time.perf_counter() - due))
    else:
        sent.errors[str(status)] += 1


async def answered(reader: asyncio.StreamReader) -> int:
    """The status of one whole answer; those of the routes that are measured have a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    _, _, rest = head.lower().partition(b"content-length:")
    await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    return status


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("socket", type=Path)
    parser.add_argument("path")
    parser.add_argument("--body", default="")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rate", type=float, default=1000.0, help="of all together, a second; 0: as fast as it goes")
    parser.add_argument("--seconds", type=float, default=5.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
