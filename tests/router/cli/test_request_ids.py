"""Ids that people can type."""

from router.cli.request_ids import short_id


def test_ids_that_gateways_made_are_short():
    assert short_id("0123456789abcdef0123456789abcdef-00ff00ff00ff00ff-0") == "00ff00ff00ff00ff-0"
    assert short_id("order-17-00ff00ff00ff00ff-0") == "order-17-00ff00ff00ff00ff-0"
