"""Argument parsers of the scripts, and the arguments that many of them have."""

import argparse


def script_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser for ``python -m module``. The first line of ``doc``, the script's docstring, is its description."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").partition("\n")[0])
