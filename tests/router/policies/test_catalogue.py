import pytest

from router.policies.catalogue import catalogue
from router.policies.registry import policies


@pytest.mark.parametrize("doc", catalogue(), ids=lambda doc: doc.name)
def test_every_policy_and_each_of_its_parameters_says_what_it_is(doc):
    assert doc.about
    assert [parameter.name for parameter in doc.parameters] == list(policies()[doc.name].parameters.__struct_fields__)
    assert [parameter.name for parameter in doc.parameters if not parameter.about or not parameter.allowed] == []


def test_bounds_are_told():
    tropical = next(doc for doc in catalogue() if doc.name == "tropical")
    watermark = next(parameter for parameter in tropical.parameters if parameter.name == "watermark")
    assert (watermark.default, watermark.allowed) == (0.9, "number above 0, at most 1")
