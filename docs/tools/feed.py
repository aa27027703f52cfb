"""The page of the feed's frames, made from `router.feed.frames`."""

import typing

from docs.tools.messages import parts_of, section
from router.feed import frames

_INTRODUCTION = """# The feed

This page is made from `router/feed/frames.py`. `GET /mesh/feed` on a gateway's admin address tells what happens in the
mesh, as server-sent events: the page at `/ui` and `mesh top` read nothing else.

    curl -N http://127.0.0.1:9000/mesh/feed

- An event's name is that of its frame (`hello`, `mesh`, `requests`, `promises`, `placement`, `bye`), and its data is
  one line of JSON. Fields that are left out have their defaults.
- A reader first hears how everything is, then what changes: requests up to ten times a second, rows of the mesh up to
  twice, promises and plans once a second. When nothing changes nothing comes, but for a comment every 15 seconds.
- The rows of a `mesh` frame are those of `mesh status --json`, less the costs of steps. They are of the whole mesh, as
  this gateway hears it. Requests and promises are those of this gateway; ask each gateway for its own.
- When more happens than anybody can read, `requests` tells of one request in two, four, and so on, and says so.
- At most 64 may read one gateway's feed. Who leaves ten seconds unread is cut off and may connect again. After `bye`
  the gateway ends, or its successor serves: connect again.
"""


def page() -> str:
    parts = [_INTRODUCTION]
    used: dict[type, None] = {}
    for frame in typing.get_args(frames.Frame):
        parts.append(section(frame))
        used.update(dict.fromkeys(parts_of(frame)))
    parts.append("## What frames are made of\n")
    parts += (section(struct) for struct in sorted(used, key=lambda struct: struct.__name__))
    return "\n".join(parts)
