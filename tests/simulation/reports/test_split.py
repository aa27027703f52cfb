import pytest

from simulation.reports.split import Edge, Split


@pytest.mark.parametrize(
    ("num_before", "num_after", "is_torn"),
    [
        (0, 0, False),
        (9, 1, False),  # chance
        (100, 131, True),
        (1000, 901, False),
        (1000, 899, True),
        (1000, 1101, True),
    ],
)
def test_stretches_fit_if_about_as_many_requests_are_in_flight(num_before, num_after, is_torn):
    assert Edge(0.0, num_before, num_after).is_torn is is_torn


def test_the_edge_that_fits_worst_is_told():
    edges = (Edge(100.0, 50, 49), Edge(200.0, 400, 200), Edge(300.0, 900, 300))
    assert Split(2, 60.0, edges[:1]).warning is None
    assert Split(4, 60.0, edges).warning == (
        "not one run: at 300 s a stretch ended with 900 requests in flight, and the next one went on with 300; "
        "give a longer --lead, or no --split"
    )
