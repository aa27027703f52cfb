"""The arguments that say where jobs run."""

import argparse
import os

from mesh.jobs.runner import JobPlace, parse_place


def add_jobs(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the options that say where runs happen: a `JobPlace` as ``jobs``."""
    parser.add_argument(
        "--jobs",
        type=_processes,
        default=JobPlace(os.cpu_count() or 1),
        metavar="N",
        help="runs at a time (default: one a core)",
    )
    parser.add_argument(
        "--on", dest="jobs", type=_place, metavar="ray[:ADDRESS]", help="spread them over a Ray cluster instead"
    )


def _processes(text: str) -> JobPlace:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a whole number of at least 1")
    return JobPlace(int(text))


def _place(text: str) -> JobPlace:
    try:
        return parse_place(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
