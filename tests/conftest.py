"""What all tests share."""

import gc
import os
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path

import httpx
import pytest
import structlog
from httpx._transports import default as transports
from hypothesis import settings

from engines.models.cache import Cache
from mesh.process.garbage import COLLECT_AFTER
from tests.seeds import seeds
from tests.tools.cpu_cost import CpuCost
from tests.tools.forking import Forks
from tests.tools.rewriting import rewrite_ahead

LONG_S = 300  # files whose tests have as long as this start meshes or run models, and wait for most of their time
NUM_EXAMPLES = 25  # of Hypothesis for a test that names no number, and ten times as many at night
SHORT_BYTES = 24  # of a folder for temporary files, in which paths of Unix sockets stay short enough
DEFAULT_TOPOLOGY = Path(__file__).parents[1] / "deploy/topology.toml"
OWN: pytest.StashKey[Path] = (
    pytest.StashKey()
)  # a folder with a short name: paths of Unix sockets have 107 bytes at most

# Before any folder's fixtures bring torch: its threads wait without spinning, as there are more of them than cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="processes that are forked once all tests are collected")


def pytest_configure(config: pytest.Config) -> None:
    """What is logged stands in the report of a test that fails, one plain line each: coloured ones cost a test more."""
    settings.register_profile("tests", max_examples=len(seeds(NUM_EXAMPLES)), deadline=None)
    settings.load_profile("tests")
    gc.disable()  # nothing that is collected becomes garbage: looking for some takes a sixth of the time
    structlog.configure(processors=[structlog.processors.KeyValueRenderer(key_order=["event"])])
    transports.create_ssl_context = cache(httpx.create_ssl_context)  # each client read all authorities: 26 ms
    if not hasattr(config, "workerinput"):  # workers have it of whoever starts them
        config.stash[OWN] = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
        _leave_nothing(config.stash[OWN])
    if num_forks := config.getoption("forks"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # else what tests made and started is left
        config.option.basetemp = config.option.basetemp or config.stash[OWN] / "t"
        Path(config.option.basetemp).parent.mkdir(parents=True, exist_ok=True)
        cost = CpuCost()
        config.pluginmanager.register(cost)
        config.pluginmanager.register(Forks(num_forks, _takes_long, cost.add))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Tests are collected next, by xdist's workers each by itself."""
    if session.config.getoption("forks") or session.config.getoption("numprocesses", None):
        rewrite_ahead(session.config, Path(__file__).parent)


def pytest_collection_finish(session: pytest.Session) -> None:
    """From now on there is garbage, and none of it among some million objects of what was collected."""
    if session.config.getoption("forks") and any("torch_engine" in item.path.parts for item in session.items):
        import transformers

        _ = transformers.LlamaForCausalLM  # brings what all models need: 4 s that each worker would take
    if session.config.getoption("forks") and any("simulation" in item.path.parts for item in session.items):
        import_module("simulation.command.runs")  # what commands bring when they run, and what draws
        import_module("simulation.reports.timeline_plot")
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)  # as processes of a mesh do: a thirtieth of the time of simulations
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    if OWN in config.stash:
        shutil.rmtree(config.stash[OWN], ignore_errors=True)  # the last logs of Ray's processes may still come


def _leave_nothing(folder: Path) -> None:
    """What tests and their processes keep anywhere is in this folder, but for pytest's own, of which it keeps three."""
    usual = tempfile.gettempdir()
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", usual if len(usual) <= SHORT_BYTES else "/tmp")
    tempfile.tempdir = str(folder)
    for name in ("TMPDIR", "RAY_TMPDIR"):
        os.environ[name] = str(folder)
    for name in ("MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT"):
        os.environ[name] = str(folder / name.lower())
    _use_own_cache(folder / "cache-of-tests")


def _use_own_cache(root: Path) -> None:
    """Tests leave nothing in the user's cache, but the default model, which is fetched once and shared."""
    mine, users = Cache(root), Cache.of_user()
    services = tomllib.loads(DEFAULT_TOPOLOGY.read_text())["services"]
    for service in services.values():
        entry = users.entry(service["model"]).folder
        entry.mkdir(parents=True, exist_ok=True)
        link = mine.entry(service["model"]).folder
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(entry)
    os.environ["MESHSERVE_CACHE"] = str(root)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """What a test says of logging, by running a command in this process, holds for that test."""
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file stand together, and files that wait come first: none is left alone at the end."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [tests for tests in files.values() if _takes_long(tests[0])]
    computing = [tests for tests in files.values() if not _takes_long(tests[0])]
    items[:] = chain.from_iterable([*_apart(waiting), *computing])


def _apart(files: list[list[pytest.Item]]) -> list[list[pytest.Item]]:
    """Those that need the default model come far from each other: the first one measures what it costs, for all."""
    with_model = [tests for tests in files if tests[0].get_closest_marker("model")]
    others = [tests for tests in files if tests not in with_model]
    step = len(others) // max(len(with_model), 1)
    return [
        *chain.from_iterable([tests, *others[number * step :][:step]] for number, tests in enumerate(with_model)),
        *others[len(with_model) * step :],
    ]


def _takes_long(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("timeout")
    return mark is not None and mark.args[0] >= LONG_S
