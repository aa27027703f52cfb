"""Tests of `[transfer]`."""

import pytest

from mesh.topology.schema import TransferSpec


@pytest.mark.parametrize(
    ("share", "device", "expected"),
    [(None, "cpu", 0.015), (None, "cuda:1", 1.0), (0.2, "cpu", 0.2), (0.2, "cuda", 0.2)],
)
def test_copies_of_migrations_are_paced_where_they_take_cores_from_decodes(share, device, expected):
    assert TransferSpec(migration_share=share).migration_share_on(device) == expected
