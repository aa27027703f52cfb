"""``mesh batch FILE``: upload, wait, fetch. What it began is written down, so it can be broken off and called again."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers

DEFAULT_URL = "http://127.0.0.1:8000"


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "batch",
        help="answer a file of requests in what promises leave",
        description="Upload a file of requests, one line of JSON each as OpenAI's Batch API has them, wait until a "
        "mesh has answered them beside its promises, and write the answers. Broken off, call it again with the same "
        "names: it goes on where it was.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a file of requests, such as requests.jsonl")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUTPUT", help="where the answers go (default: FILE.answers.jsonl)"
    )
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the gateway (default: {DEFAULT_URL})")
    parser.add_argument(
        "--endpoint", metavar="PATH", help="where the requests go (default: the path of the first line)"
    )
    parser.add_argument(
        "--window", default="24h", metavar="TIME", help="the time that it may take, such as 2h (default: 24h)"
    )
    parser.add_argument("--cancel", action="store_true", help="cancel the batch that was begun, and keep its answers")
    from mesh.cli.api_key import add_api_key

    add_api_key(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import httpx

    from mesh.cli.api_key import bearer
    from router.batches.command.client import BatchClient
    from router.batches.command.job import BatchJob

    output = options.output or options.file.with_name(f"{options.file.name}.answers.jsonl")
    timeout, headers = httpx.Timeout(30.0, read=600.0, write=600.0), bearer(options.api_key_file)
    try:
        with httpx.Client(base_url=options.url.rstrip("/"), timeout=timeout, headers=headers) as http:
            job = BatchJob(BatchClient(http), options.file, output, sys.stderr)
            ended = job.run(options.endpoint, options.window, cancels=options.cancel)
    except KeyboardInterrupt:
        sys.stderr.write("\nbroken off; the mesh goes on with the batch. The same command waits for it again\n")
        return EXIT_FAILURE
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(f"{options.url}: {error or type(error).__name__}") from None
    return 0 if ended else EXIT_FAILURE
