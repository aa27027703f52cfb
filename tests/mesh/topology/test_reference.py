"""docs/reference/topology.md names every key that a topology may have."""

from pathlib import Path

import pytest

from mesh.topology import keys

REFERENCE = (Path(__file__).parents[3] / "docs/reference/topology.md").read_text()


@pytest.mark.parametrize(
    "table",
    [
        "CLUSTER",
        "MESH",
        "SERVICE",
        "ENGINE",
        "SERVER",
        "GATEWAY",
        "TRANSFER",
        "SCALING",
        "PLACEMENT",
        "HOST",
        "ACCESS",
        "TRACES",
        "ADAPTER",
        "ADAPTERS",
        "KV_TIERS",
    ],
)
def test_every_key_is_described(table: str):
    missing = [key for key in getattr(keys, table) if f"`{key}`" not in REFERENCE]
    assert missing == []
