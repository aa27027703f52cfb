"""Requests of all kinds, made from the OpenAPI document, are answered as it says."""

from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.router.api.conftest import ScriptedRouter, apis_of, both, one_by_one
from tests.seeds import seeds

# Not whether all that fits the schema is taken: which token ids and lengths a model has is in no schema. Nor whether
# all that does not is refused: `test_fuzzed_bodies` and `test_parsing` know better what each body means.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
COUNT = len(seeds(1))


@pytest.fixture(scope="module")
def operations(model):
    apps = apis_of(model, ScriptedRouter(lambda spec: one_by_one([10, 11])), max_body_bytes=20_000)
    schema = schemathesis.openapi.from_asgi("/openapi.json", both(apps))
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.parametrize("mode", GenerationMode)
def test_what_comes_is_what_the_document_says(operations, mode):
    for operation in operations:

        @settings(max_examples=COUNT, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Case) -> None:
            case.call_and_validate(checks=CHECKS)

        with suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked, or any text will do
            ask()


def test_each_path_says_what_comes_when_it_goes_wrong(operations):
    assert len(operations) >= 10
    for operation in operations:
        statuses = set(operation.definition.raw["responses"])
        assert {"200", "400", "401", "404", "405", "408", "414", "429", "431", "500", "503"} <= statuses
        assert "422" not in statuses
        assert (operation.method == "post") == ("413" in statuses)
