"""Orders of operators, carried out by one gateway."""

import asyncio
from pathlib import Path

import pytest

from engines.models.files.model_config import ModelConfig
from mesh.topology.parse import load
from mesh.wire.adapters import AdapterAnswer, AddAdapter, AddedAdapter, RemoveAdapter
from router.adapters.added import AddedAdapters
from router.adapters.kept import KeptAdapters
from router.adapters.orders import MOST_WAITING, AdapterExistsError, AdapterOrders, AdapterUnknownError
from tests.engines.adapters.writing import write_adapter
from tests.models.tiny_llama import write_tiny_model

TOPOLOGY = """
[services.chat]
model = "{folder}/model"
[services.own]
base = "chat"
adapter = "own"
[engines.one]
[adapters]
folder = "."
"""


class Router:
    """Serves what it is told; what others say is in ``added`` already."""

    def __init__(self) -> None:
        self.added = AddedAdapters(4, ["chat"])

    def serve_adapter(self, wanted: AddedAdapter) -> bool:
        self.added.order(wanted)
        known = self.added.known[wanted.adapter.service]
        return without_version(known) == without_version(wanted)


def without_version(one: AddedAdapter) -> tuple[object, ...]:
    return one.adapter, one.base, one.is_removed


class Desk:
    """Orders, and the answers to those of the mesh."""

    def __init__(self, folder: Path) -> None:
        self.router, self.answers = Router(), list[tuple[str, AdapterAnswer]]()
        kept = KeptAdapters(None, self.router.added)
        self.orders = AdapterOrders(load(folder / "t.toml"), self.router, kept, self._answered)
        self._num_wanted, self._has_all = 0, asyncio.Event()

    def _answered(self, asker: str, answer: AdapterAnswer) -> None:
        self.answers.append((asker, answer))
        if len(self.answers) == self._num_wanted:
            self._has_all.set()

    async def answer_all(self, count: int) -> None:
        self._num_wanted = count
        async with asyncio.timeout(60):
            running = asyncio.create_task(self.orders.run())
            await self._has_all.wait()
            running.cancel()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orders")
    config = ModelConfig.load(write_tiny_model(folder / "model"))
    for seed, name in enumerate(("own", "law", "code")):
        write_adapter(folder / name, config, seed=seed)
    (folder / "t.toml").write_text(TOPOLOGY.replace("{folder}", str(folder)))
    return folder


@pytest.fixture
def desk(folder: Path) -> Desk:
    return Desk(folder)


async def test_an_adapter_is_added_once_unless_it_takes_the_place_of_another(desk: Desk):
    await desk.orders.add(AddAdapter("law", "law"), "me")
    assert desk.router.added.served["law"].base == "chat"
    with pytest.raises(AdapterExistsError, match="'law' is served already"):
        await desk.orders.add(AddAdapter("law", "law"), "me")
    await desk.orders.add(AddAdapter("law", "code", in_place=True), "me")
    assert desk.router.added.served["law"].adapter.folder.endswith("/code")


async def test_what_a_command_says_twice_is_so_once(desk: Desk):
    orders = [AddAdapter("law", "law"), AddAdapter("law", "law"), RemoveAdapter("law"), RemoveAdapter("law")]
    for order in orders:
        desk.orders.take("cli-1", order)
    await desk.answer_all(4)
    assert desk.answers == [("cli-1", AdapterAnswer("law"))] * 4
    assert not desk.router.added.served


async def test_what_cannot_be_is_answered(desk: Desk):
    await desk.orders.add(AddAdapter("law", "law"), "me")
    told = [
        (AddAdapter("law", "code"), "The adapter 'law' is served already"),
        (AddAdapter("code", "../x"), "'../x' is not below the folder of [adapters]; put the adapter there"),
        (AddAdapter("code", "code", "chit"), "'chit' is no service; did you mean 'chat'?"),
        (RemoveAdapter("own"), "The adapter 'own' is of the deployment's file, and stays"),
        (RemoveAdapter("lav"), "The adapter 'lav' is not served; did you mean 'law'?"),
    ]
    for order, _ in told:
        desk.orders.take("cli-1", order)
    await desk.answer_all(len(told))
    assert [answer.problem for _, answer in desk.answers] == [problem for _, problem in told]


async def test_an_unknown_adapter_is_not_removed(desk: Desk):
    with pytest.raises(AdapterUnknownError, match="'law' is not served"):
        await desk.orders.remove("law", "me")


def test_only_so_many_orders_wait(desk: Desk):
    for _ in range(MOST_WAITING + 1):
        desk.orders.take("cli-1", RemoveAdapter("law"))
    assert desk.answers == [("cli-1", AdapterAnswer("law", "the gateway has too many such orders; try again"))]
