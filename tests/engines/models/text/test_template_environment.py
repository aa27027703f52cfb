import pytest
from jinja2 import TemplateError

from engines.models.text.template_environment import template_environment


def render(source: str, **variables: object) -> str:
    return template_environment().from_string(source).render(variables)


def test_json_keeps_letters_and_signs_of_html():
    assert render("{{ x | tojson }}", x={"é": "<&>"}) == '{"é": "<&>"}'


def test_namespaces_and_dicts_are_there():
    source = "{% set ns = namespace(self=1) %}{% set ns.n = 2 %}{{ ns.self + ns.n }}{{ dict(a=1) }}"
    assert render(source) == "3{'a': 1}"
    assert render("{{ dict.fromkeys(['a'], 1) }}") == "{'a': 1}"


@pytest.mark.parametrize(
    "source",
    [
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ dict.__class__.__mro__ }}",
        "{{ dict.mro() }}",
    ],
)
def test_templates_cannot_reach_the_insides_of_python(source: str):
    with pytest.raises(TemplateError):
        render(source)


def test_what_a_generation_block_sets_stays_in_it():
    assert render("{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}") == "21"
