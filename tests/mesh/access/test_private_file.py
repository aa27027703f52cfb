import os
from types import SimpleNamespace

import pytest

from mesh.access.private_file import is_private

ROOT, SOMEBODY = 0, 1000


@pytest.mark.parametrize(
    ("mode", "owner", "user", "private"),
    [
        (0o600, SOMEBODY, SOMEBODY, True),
        (0o640, SOMEBODY, SOMEBODY, False),
        (0o440, ROOT, SOMEBODY, True),
        (0o460, ROOT, SOMEBODY, False),
        (0o444, ROOT, SOMEBODY, False),
        (0o440, ROOT, ROOT, False),
    ],
)
def test_a_group_may_read_what_is_roots(monkeypatch, mode, owner, user, private):
    monkeypatch.setattr(os, "getuid", lambda: user)
    assert is_private(SimpleNamespace(st_mode=mode, st_uid=owner)) == private
