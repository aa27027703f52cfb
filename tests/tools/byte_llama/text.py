"""Text that every Python brings along: what its standard library says of itself.

Documents are documentation strings, blocks of comments, the topics of `help()`, and the licence. Every twentieth source
file is held out whole; of its documents, those that share `SHARED_BYTES` consecutive bytes with the rest are dropped.
"""

import ast
import re
import sysconfig
import tokenize
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

LEFT_OUT = ("site-packages", "test", "tests", "idle_test", "_bundled")  # folders
SHORTEST = 40  # bytes of a document
HELD_OUT_OF = 20
SHARED_BYTES = 64
_COMMENT = re.compile(r"\s*# ?(.*)")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents as bytes, each one once."""

    training: Sequence[bytes]
    held_out: Sequence[bytes]


def standard_library() -> Corpus:
    """The corpus of the Python that runs this."""
    return library(Path(sysconfig.get_path("stdlib")))


def library(root: Path) -> Corpus:
    """In an order that does not hang on the file system."""
    training: dict[bytes, None] = {}
    held_out: dict[bytes, None] = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not set(name.parts) & set(LEFT_OUT):
            (held_out if is_held_out(name) else training).update(dict.fromkeys(_documents(path)))
    training.update(dict.fromkeys(_long_enough([*_topics(), (root / "LICENSE.txt").read_text()])))
    return Corpus(list(training), _unlike([one for one in held_out if one not in training], list(training)))


def is_held_out(name: Path) -> bool:
    """Whether a source file is, by its path in the library."""
    return zlib.crc32(name.as_posix().encode()) % HELD_OUT_OF == 0


def _documents(path: Path) -> Iterator[bytes]:
    try:
        with tokenize.open(path) as file:
            source = file.read()
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError):  # samples of bad source files
        return
    nodes = (node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED))
    yield from _long_enough(ast.get_docstring(node) or "" for node in nodes)
    yield from _long_enough(_comments(source))


def _comments(source: str) -> Iterator[str]:
    """Consecutive lines of comments, without their marks."""
    matches = (_COMMENT.fullmatch(line) for line in source.splitlines())
    for is_comment, block in groupby(matches, key=bool):
        if is_comment:
            yield "\n".join(match[1] for match in block if match).strip()


def _topics() -> Sequence[str]:
    from pydoc_data.topics import topics

    return list(topics.values())


def _long_enough(texts: "Iterator[str] | Sequence[str]") -> Iterator[bytes]:
    return (document for text in texts if len(document := text.strip().encode()) >= SHORTEST)


def _unlike(documents: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    """Those that share no long stretch with any of the others."""
    known = set[int]().union(*map(_stretches, others))
    return [one for one in documents if known.isdisjoint(_stretches(one))]


def _stretches(document: bytes) -> set[int]:
    """Hashes of all stretches of `SHARED_BYTES`, or of the whole of a shorter document."""
    size = min(SHARED_BYTES, len(document))
    return {hash(document[first : first + size]) for first in range(len(document) - size + 1)}
