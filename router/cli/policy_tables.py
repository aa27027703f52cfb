"""Writes what ``mesh policy`` prints."""

import json
import sys
from datetime import datetime, timedelta

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mesh.topology.schema import GatewaySpec, Topology
from mesh.wire.control import PolicyChoice
from mesh.wire.status import GatewayStatus
from router.cli.polling import Poll
from router.policies.catalogue import PolicyDoc, catalogue

WIDTH_OF_A_PIPE = 120
SINGLE = "A single gateway that starts again runs the topology's policy."
SEVERAL = "A gateway that starts again takes the policy of the others; a mesh that starts anew, the topology's."


def make_console() -> Console:
    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)


def print_policies(topology: Topology, poll: Poll) -> None:
    """Each gateway's policy, and what else there is."""
    console = make_console()
    table = Table("gateway", "policy", "parameters", "since", "chosen", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for gateway in topology.gateways:
        table.add_row(*_row(gateway, poll.heard.get(gateway.id)))
    console.print(table)
    console.print(f"policies: {', '.join(doc.name for doc in catalogue())} (`mesh policy --list` describes them)")
    console.print(SINGLE if len(topology.gateways) == 1 else SEVERAL)


def _row(gateway: GatewaySpec, status: GatewayStatus | None) -> tuple[Text, ...]:
    policy = status.policy if status else None
    if status is None or policy is None:
        return Text(gateway.id), Text("no answer", "red"), Text("-"), Text("-"), Text("-")
    chosen = f"switch {policy.version}" if policy.version else "topology"
    return Text(gateway.id), Text(policy.name), Text(_settings(policy) or "none"), Text(_since(status)), Text(chosen)


def _settings(policy: PolicyChoice) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in policy.parameters.items())


def _value(value: object) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value)


def _since(status: GatewayStatus) -> str:
    since = datetime.now().astimezone() - timedelta(seconds=status.policy_age_s)
    is_today = since.date() == datetime.now().astimezone().date()
    return f"{since:%H:%M:%S}" if is_today else f"{since:%Y-%m-%d %H:%M}"


def in_words(policy: PolicyChoice | None) -> str:
    return " ".join(filter(None, (policy.name, _settings(policy)))) if policy else "no policy"


def print_json(topology: Topology, poll: Poll) -> None:
    statuses = {gateway.id: poll.heard.get(gateway.id) for gateway in topology.gateways}
    summary = {
        "mesh": topology.name,
        "gateways": [
            {
                "id": id_,
                "policy": msgspec.to_builtins(status.policy) if status else None,
                "age_s": status.policy_age_s if status else None,
            }
            for id_, status in statuses.items()
        ],
        "wanted": msgspec.to_builtins(poll.choice),
    }
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")


def print_catalogue(*, as_json: bool) -> None:
    docs = catalogue()
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(docs), indent=2) + "\n")
        return
    console = make_console()
    for doc in docs:
        console.print(Text.assemble((doc.name, "bold"), f"  {doc.about}"))
        if doc.parameters:
            console.print(_parameters(doc))


def _parameters(doc: PolicyDoc) -> Table:
    table = Table("parameter", "default", "allowed", "meaning", box=None, padding=(0, 2, 0, 2), header_style="dim")
    for parameter in doc.parameters:
        texts = (parameter.name, _value(parameter.default), parameter.allowed, parameter.about)
        table.add_row(*map(Text, texts))
    return table
