"""The folders of stores that no topology names."""

import os
from pathlib import Path


def state_folder(mesh: str, kind: str) -> Path:
    """Return where a mesh keeps one kind of thing, unless its topology says where."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "meshserve" / mesh / kind
