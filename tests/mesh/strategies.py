"""Messages for Hypothesis: each kind as it may be on the wire, honest ones and odd ones."""

import msgpack
from hypothesis import strategies as st

EDGES = (0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1e308, -1.0)
ODD = st.one_of(
    st.sampled_from([*EDGES, *FLOATS, None, True, "", "x" * 5000, b"", b"\xff" * 40]),
    st.lists(st.integers(-5, 5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=14)),
)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Paths to all parts of a decoded message."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def with_part(value: object, path: tuple[object, ...], part: object) -> object:
    """The same with another part there."""
    if not path:
        return part
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = with_part(changed[path[0]], path[1:], part)
    return changed


@st.composite
def mutated(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A valid body with parts replaced by odd ones, or with bytes changed, cut off or put in."""
    body = draw(bodies)
    if draw(st.booleans()):
        plain = msgpack.unpackb(body, strict_map_key=False)
        for _ in range(draw(st.integers(1, 3))):
            plain = with_part(plain, draw(st.sampled_from(places(plain))), draw(ODD))
        return bytes(msgpack.packb(plain))
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    return body[:start] + draw(st.binary(max_size=12)) + body[end:]
