"""State diagrams of the transfer machines, drawn from their transition tables.

``python -m docs.tools.diagrams`` writes them into the page that shows them; a test compares them.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from kvtransfer.machine import Machine
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.send import SendTransfer

PAGE = Path(__file__).parents[1] / "concepts/migration.md"
# Transitions that `_settle` makes without an event, and why.
_SETTLES = {
    "sender": (
        ("flushing", "committing", "all blocks are acknowledged, Commit is sent"),
        ("lingering", "aborted", "nobody reads the blocks any more"),
    ),
    "receiver": (
        ("settling", "committed", "all announced blocks are here, Adopt"),
        ("aborting", "aborted", "no copy is running"),
    ),
}
_MACHINES: dict[str, tuple[type[Machine[Any, Any, Any]], str]] = {
    "sender": (SendTransfer, "reserving"),
    "receiver": (ReceiveTransfer, "reserved"),
}


def diagram(name: str) -> str:
    """A Mermaid state diagram. Events that change no state are left out."""
    machine, first = _MACHINES[name]
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for state, rules in machine.rules.items():
        for event, rule in rules.items():
            if rule.then is not state:
                arrows[str(state.value), str(rule.then.value)].append(event.__name__)
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += (f"    {start} --> {end}: {_wrapped(events)}" for (start, end), events in arrows.items())
    lines += (f"    {start} --> {end}: {why}" for start, end, why in _SETTLES[name])
    lines += (f"    {state.value} --> [*]" for state in machine.rules if str(state.value) in _last_states(name))
    return "\n".join(lines)


def _last_states(name: str) -> tuple[str, ...]:
    return ("done", "aborted") if name == "sender" else ("committed", "aborted")


def _wrapped(events: list[str]) -> str:
    return "<br>".join(", ".join(events[start : start + 3]) for start in range(0, len(events), 3))


def drawn(text: str) -> str:
    """The page with the diagrams of now between its markers."""
    for name in _MACHINES:
        block = f"<!-- states of the {name} -->\n```mermaid\n{diagram(name)}\n```\n<!-- end -->"
        pattern = rf"<!-- states of the {name} -->.*?<!-- end -->"
        text = re.sub(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
