"""One computer of each backend, used by all contract tests: to start vLLM takes half a minute."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.contract.computers import (
    ROOT,
    Computer,
    Desk,
    KeepsNoBlocks,
    Remote,
    simulated_computer,
    torch_computer,
)
from tests.engines.runner import Runner

HERE: dict[str, Callable[[], Computer]] = {
    "torch": torch_computer,
    "transformers": KeepsNoBlocks,
    "simulated": simulated_computer,
}
BACKENDS = ("torch", "vllm", "transformers", "simulated")


def vllm_python() -> str | None:
    """The interpreter of an environment with vLLM, if there is one."""
    default = ROOT / ".venv-vllm/bin/python"
    return os.environ.get("MESHSERVE_VLLM_PYTHON") or (str(default) if default.exists() else None)


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def computer(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Computer]:
    if backend == "vllm":
        python = vllm_python()
        if python is None:
            pytest.skip("no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON")
        made: Computer = Remote(python, Path(tmp_path_factory.mktemp("vllm")) / "log")
    else:
        made = HERE[backend]()
    yield made
    made.close()


@pytest.fixture
def desk(computer: Computer) -> Desk:
    return Desk(computer, seed=1)


@pytest.fixture
def make_runner(desk: Desk) -> Callable[[], Runner]:
    return desk.runner


@pytest.fixture(autouse=True)
def fails_where_it_is_lacking(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("feature")
    if marker is not None and request.getfixturevalue("backend") in marker.args[1]:
        request.applymarker(pytest.mark.xfail(strict=True, reason=f"lacks: {marker.args[0]}"))
