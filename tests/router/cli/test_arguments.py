from pathlib import Path

import pytest

from mesh.cli.arguments import split_topology
from mesh.cli.running_mesh import DEFAULT_TOPOLOGY
from mesh.errors import UserError
from router.cli import plan, policy


def test_a_topology_may_come_first(tmp_path):
    odd = tmp_path / "deployment"
    odd.touch()
    assert split_topology(["t.toml", "tropical", "watermark=1"]) == (Path("t.toml"), ["tropical", "watermark=1"])
    assert split_topology([str(odd), "r"]) == (odd, ["r"])
    assert split_topology(["chatcmpl-00ff"]) == (DEFAULT_TOPOLOGY, ["chatcmpl-00ff"])
    assert split_topology([]) == (DEFAULT_TOPOLOGY, [])


def test_values_are_written_as_in_a_topology():
    assert policy._setting("watermark=0.5") == ("watermark", 0.5)
    assert policy._setting("flips=true") == ("flips", True)
    assert policy._setting("mode=slack") == ("mode", "slack")
    assert policy._wanted(["tropical", "watermark=1"]).parameters["watermark"] == 1.0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["tropcial"], "no policy 'tropcial'; did you mean 'tropical'"),
        (["tropical", "watermrak=1"], "watermrak: not a parameter of tropical; did you mean 'watermark'"),
        (["tropical", "watermark=2"], "watermark: expected a number <= 1.0"),
        (["tropical", "watermark"], "'watermark': a parameter is given as KEY=VALUE"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_sent(words, error):
    with pytest.raises(UserError) as caught:
        policy._wanted(words)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_plan_is_asked_to_do():
    new = Path("new.toml")
    assert plan._split([]) == (DEFAULT_TOPOLOGY, None, None)
    assert plan._split(["t.toml"]) == (Path("t.toml"), None, None)
    assert plan._split(["apply"]) == (DEFAULT_TOPOLOGY, plan.Action.APPLY, None)
    assert plan._split(["t.toml", "apply", "new.toml"]) == (Path("t.toml"), plan.Action.APPLY, new)
    assert plan._split(["apply", "new.toml"]) == (DEFAULT_TOPOLOGY, plan.Action.APPLY, new)
    assert plan._split(["t.toml", "resume"]) == (Path("t.toml"), plan.Action.RESUME, None)
    assert plan._split(["search"]) == (DEFAULT_TOPOLOGY, plan.Action.SEARCH, None)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["t.toml", "aply"], "no file 'aply', and nothing to do is called so; did you mean 'apply'"),
        (["resume", "new.toml"], "resume takes nothing after it, but 'new.toml' is there; usage: "),
        (["t.toml", "apply", "new.toml", "newer.toml"], "apply takes one topology after it; usage: "),
    ],
)
def test_what_no_plan_can_be_asked_to_do(words, error):
    with pytest.raises(UserError, match=error):
        plan._split(words)
