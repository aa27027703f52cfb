"""Extras are named by what they bring, and a missing one is one line."""

import pytest

from mesh.errors import UserError
from mesh.extras import lacking, missing_extra, require_extra, requirements_by_extra


def test_what_is_missing_is_one_line_that_names_the_extra():
    require_extra("this test", "dev", "pytest")
    with pytest.raises(UserError) as caught:
        require_extra("the torch backend", "torch", "no_such_module", "pytest")
    assert str(caught.value) == (
        "the torch backend needs no_such_module, not installed for this interpreter: pip install 'meshserve[torch]'"
    )
    assert missing_extra("x", "y", "no_such", "neither").startswith("x needs no_such and neither, ")


def test_requirements_are_read_by_extra():
    lines = [
        "httpx<1,>=0.27",
        "torch>=2.7; extra == 'torch'",
        'cupy-cuda12x[ctk]<15; sys_platform == "linux" and extra == "gpu"',
    ]
    assert requirements_by_extra([*lines, "meshserve[torch]; extra == 'dev'"]) == {
        "torch": ["torch"],
        "gpu": ["cupy-cuda12x"],
    }


def test_the_named_extras_are_there():
    assert {"torch", "vllm", "ray", "gpu", "bench"} <= lacking().keys()
    assert lacking()["torch"] == []
