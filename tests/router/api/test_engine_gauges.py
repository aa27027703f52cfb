"""What Prometheus reads of the engines."""

from msgspec.structs import replace

from router.api.metrics.gateway import EngineGauges
from router.view.engine_view import engine_view
from tests.router.cluster import SERVICE, make_status, make_view


def test_errors_of_step_predictions_are_exported_once_engines_know_them():
    status = make_status("decode-0")
    service = replace(status.services[0], decode_error=0.07)
    view = make_view(engine_view("decode-0", replace(status, services=[service]), 0.0, ()))
    (family,) = (one for one in EngineGauges(lambda: view).collect() if one.name == "meshserve_step_prediction_error")
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"model_name": SERVICE, "engine": "decode-0", "step": "decode"}, 0.07)
    ]
