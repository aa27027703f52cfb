from mesh.wire.requests import FinishReason
from router.api.metrics.gateway import LengthCalibration
from router.history.lengths import LengthPredictor
from tests.router.cluster import SERVICE, make_spec


def test_prometheus_reads_how_predictions_turned_out():
    predictor = LengthPredictor()
    for num_tokens in (64, 10):
        spec = make_spec(max_tokens=64)
        finish = FinishReason.LENGTH if num_tokens == 64 else FinishReason.STOP
        predictor.ended(spec, predictor.predict(spec), num_tokens, finish)
    samples = {
        (sample.name, sample.labels.get("quantile")): sample.value
        for family in LengthCalibration(predictor.calibration).collect()
        for sample in family.samples
        if sample.labels["model_name"] == SERVICE
    }
    assert samples["meshserve_length_predictions_total", None] == 2
    assert samples["meshserve_length_predictions_within_total", "0.9"] == 2
    assert samples["meshserve_predicted_tokens_total", None] == 128
    assert samples["meshserve_predicted_tokens_actual_total", None] == 74
