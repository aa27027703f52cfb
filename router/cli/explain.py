"""``mesh explain``: what happened to a request, why, and whether it went as predicted."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from mesh.errors import EXIT_FAILURE, UserError
from mesh.show.output import Showing, add_show

if TYPE_CHECKING:
    import httpx

    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology
    from router.history.explain import Explanations

USAGE = "mesh explain [FILE] [REQUEST] [-n N] [--json] [--plot FILE] [--html FILE]"
TIMEOUT_S = 5.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "explain",
        usage=USAGE,
        help="tell what happened to a request, and why",
        description="Tell what happened to a request: what each decision saw, and whether it went as predicted.",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE REQUEST",
        help="the deployment; the id of an answer or its x-request-id (default: list the most recent requests)",
    )
    parser.add_argument("-n", type=int, default=20, metavar="N", help="how many requests to list (default: 20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show(parser, "what happened to a request over time, with its promises")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.arguments import split_topology
    from mesh.cli.cluster import require_running
    from mesh.topology.parse import load

    file, words = split_topology(options.words)
    if len(words) > 1:
        raise UserError(f"one request at a time, not {len(words)}; usage: {USAGE}")
    if not words and (options.plot or options.html):
        raise UserError(f"--plot and --html: are of one request; name it; usage: {USAGE}")
    showing = Showing.of(options, is_for_programs=options.json)
    topology = load(file)
    require_running(topology, file)
    return _explain(topology, words[0], options.json, showing) if words else _list(topology, options.n, options.json)


def _list(topology: "Topology", count: int, as_json: bool) -> int:
    from router.cli.story import print_list

    found = dict(_ask_all(topology, f"/mesh/requests?limit={max(count, 0)}"))
    answers = [answer for answer in found.values() if not isinstance(answer, str)]
    if not answers:
        return _complain(found.values())
    if as_json:
        _print_json(answers)
    else:
        print_list(answers, count)
    for problem in found.values():
        if isinstance(problem, str):
            sys.stderr.write(f"{problem}\n")
    return 0


def _explain(topology: "Topology", request: str, as_json: bool, showing: Showing) -> int:
    from router.cli.story import print_stories
    from router.cli.story_picture import story_page

    problems = []
    for _, answer in _ask_all(topology, f"/mesh/requests/{quote(request, safe='')}"):
        if isinstance(answer, str):
            problems.append(answer)
        else:
            if as_json:
                _print_json([answer])
            else:
                print_stories(answer)
            showing.put(partial(story_page, answer))
            return 0
    return _complain(problems)


def _complain(problems: "Iterable[Explanations | str]") -> int:
    sys.stderr.write("; ".join(map(str, problems)) + "\n")
    return EXIT_FAILURE


def _print_json(answers: "list[Explanations]") -> None:
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(answers[0] if len(answers) == 1 else answers), indent=2)
    sys.stdout.write(text.decode() + "\n")


def _ask_all(topology: "Topology", path: str) -> "Iterator[tuple[str, Explanations | str]]":
    """Each gateway's answer, or why there is none in one line."""
    import httpx

    from mesh.cli.api_key import bearer
    from mesh.cli.cluster import admin_urls

    with httpx.Client(timeout=TIMEOUT_S, trust_env=False, headers=bearer()) as client:
        for gateway, url in admin_urls(topology).items():
            silence = f"{gateway} does not answer: it does not run, or is silent"
            yield gateway, silence if url is None else _ask(client, gateway, url + path)


def _ask(client: "httpx.Client", gateway: str, url: str) -> "Explanations | str":
    import httpx
    import msgspec

    from router.history.explain import Explanations

    try:
        response = client.get(url)
        if response.is_success:
            return msgspec.json.decode(response.content, type=Explanations)
        return str(response.json()["error"]["message"])
    except httpx.HTTPError as error:
        return f"{gateway} does not answer at {url.partition('/mesh/')[0]} ({str(error) or type(error).__name__})"
    except (ValueError, KeyError, TypeError):
        return f"what answers at {url.partition('/mesh/')[0]} is not the gateway {gateway}"
