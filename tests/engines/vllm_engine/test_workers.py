"""vLLM engines with one worker and with two read each other's blocks: each worker has its heads side by side."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.scheduling.batch import Chunk, Draw
from mesh.wire.requests import Sampling
from tests.engines.contract.computers import BLOCK_SIZE, FOLDER, Remote
from tests.engines.contract.conftest import vllm_python

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
PROMPT = [3 + (7 * number) % 200 for number in range(2 * BLOCK_SIZE + 9)]
NUM_DECODES = 6


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Remote, Remote]]:
    """With one worker, and with two."""
    folder = Path(tmp_path_factory.mktemp("workers"))
    one, two = (Remote(str(vllm_python()), folder / n, "0", str(FOLDER), "float32", n) for n in ("1", "2"))
    yield one, two
    one.close()
    two.close()


def draw(tokens: list[int]) -> Draw:
    return Draw(Sampling(1, 0, temperature=0.0), tokens, len(tokens), len(PROMPT))


def go_on(engine: Remote, tokens: list[int], start: int, blocks: list[int], num: int) -> list[int]:
    """The tokens that follow, from those whose KV is not there."""
    tokens = list(tokens)
    for _ in range(num):
        [result] = engine.compute([Chunk("r", tokens[start:], start, blocks, draw(tokens))])
        assert isinstance(result.token, int)
        start = len(tokens)
        tokens.append(result.token)
    return tokens


def test_a_request_goes_on_with_another_number_of_workers(engines: tuple[Remote, Remote]):
    one, two = engines
    assert one.form == two.form
    alone = go_on(one, PROMPT, 0, [0, 1, 2], NUM_DECODES)
    for source, target in ((one, two), (two, one), (two, two)):
        begun = go_on(source, PROMPT, 0, [10, 11, 12], 3)
        for block in range(3):
            target.write_block(20 + block, source.read_block(10 + block))
        assert go_on(target, begun, len(begun) - 1, [20, 21, 22], NUM_DECODES - 3) == alone


def test_workers_end_with_their_engine(engines: tuple[Remote, Remote]):
    _, two = engines
    workers = [one for one in children_of(two.pid) if "VLLM::Worker" in command_of(one)]
    assert len(workers) == 2
    os.kill(two.pid, signal.SIGKILL)
    until = time.monotonic() + 60.0
    while any("VLLM::Worker" in command_of(one) for one in workers):
        assert time.monotonic() < until, "they outlive it"
        time.sleep(0.1)


def children_of(pid: int) -> list[int]:
    parents = {int(path.name): parent_of(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return [one for one, parent in parents.items() if parent == pid]


def parent_of(path: Path) -> int:
    """Its parent; 0 if it has gone."""
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_of(pid: int) -> str:
    """Empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
