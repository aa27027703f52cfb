"""What gateways keep of the adapters that were added."""

import asyncio
import json
from pathlib import Path

import pytest

from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.adapters import AddedAdapter, LoraAdapter
from router.adapters.added import AddedAdapters
from router.adapters.kept import MOST_BYTES, KeptAdapters

TOPOLOGY = """
[services.chat]
model = "hf:a/b"
[engines.one]
[adapters]
folder = "adapters"
state = "state"
most = 4
"""


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    (tmp_path / "t.toml").write_text(TOPOLOGY)
    for name in ("law", "code", "poems"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
    return load(tmp_path / "t.toml")


def word(topology: Topology, name: str, *, base: str = "chat", is_removed: bool = False) -> AddedAdapter:
    assert topology.added is not None
    folder = topology.added.folder / name
    return AddedAdapter(LoraAdapter(name, str(folder), "1", 8), base, 0, is_removed)


def gateway(topology: Topology, name: str = "gateway-0") -> tuple[AddedAdapters, KeptAdapters]:
    """One that starts."""
    added = AddedAdapters.of(topology)
    kept = KeptAdapters.of(topology, name, added)
    kept.restore()
    return added, kept


async def test_they_are_there_again_and_removed_ones_are_not(topology: Topology):
    added, kept = gateway(topology)
    for name in ("law", "code"):
        added.order(word(topology, name))
        await kept.keep()
    added.order(word(topology, "law", is_removed=True))
    await kept.keep()
    again, _ = gateway(topology)
    assert again.known == added.known
    assert [*again.served] == ["code"]
    assert not gateway(topology, "gateway-1")[0].known


async def test_what_one_gateway_removed_stays_removed_though_another_has_it_in_its_file(topology: Topology):
    first, second = gateway(topology), gateway(topology, "gateway-1")
    first[0].order(word(topology, "law"))
    second[0].hear(first[0].known)
    await second[1].keep()  # and is gone before it hears more
    first[0].order(word(topology, "law", is_removed=True))
    await first[1].keep()
    again = gateway(topology)[0], gateway(topology, "gateway-1")[0]
    assert [*again[1].served] == ["law"]
    again[1].hear(again[0].known)
    again[0].hear(again[1].known)
    assert not again[0].served
    assert not again[1].served


async def test_what_others_say_is_kept_too(topology: Topology):
    added, kept = gateway(topology)
    added.hear({"law": word(topology, "law")})
    kept.changed()
    running = asyncio.create_task(kept.run())
    for _ in range(10_000):
        if gateway(topology)[0].served:
            break
        await asyncio.sleep(0.001)
    running.cancel()
    assert gateway(topology)[0].served


@pytest.mark.parametrize("change", ["base", "name", "folder"])
async def test_what_cannot_be_served_any_more_is_left_out(topology: Topology, change: str, tmp_path: Path):
    added, kept = gateway(topology)
    added.order(word(topology, "law"))
    added.order(word(topology, "code"))
    await kept.keep()
    text = TOPOLOGY
    if change == "base":
        text = TOPOLOGY.replace("[services.chat]", "[services.talk]")
    elif change == "name":
        text = TOPOLOGY.replace('model = "hf:a/b"', 'model = "hf:a/b"\naliases = ["law"]')
    else:
        (tmp_path / "adapters/law").rmdir()
    (tmp_path / "t.toml").write_text(text)
    assert [*gateway(load(tmp_path / "t.toml"))[0].served] == ([] if change == "base" else ["code"])


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"format": 2, "adapters": []}', '{"format": 1, "adapters": 3}', "[" * 10_000, "x" * MOST_BYTES + "y"],
)
def test_a_file_that_is_broken_is_as_none(topology: Topology, text: str, tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state/gateway-0.json").write_text(text)
    assert not gateway(topology)[0].known


async def test_a_disk_that_fails_costs_nothing_but_the_file(topology: Topology, tmp_path: Path):
    (tmp_path / "state").write_text("no folder")
    added, kept = gateway(topology)
    added.order(word(topology, "law"))
    await kept.keep()
    assert added.served
    (tmp_path / "state").unlink()
    await kept.keep()
    assert json.loads((tmp_path / "state/gateway-0.json").read_text())["format"] == 1


async def test_nothing_is_kept_where_that_is_so_wanted(tmp_path: Path, topology: Topology):
    (tmp_path / "t.toml").write_text(TOPOLOGY + "keep = false\n")
    added, kept = gateway(load(tmp_path / "t.toml"))
    added.order(word(topology, "law"))
    await kept.keep()
    assert not (tmp_path / "state").exists()
