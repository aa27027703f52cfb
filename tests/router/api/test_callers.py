import pytest

from router.api.callers import UNKNOWN, OpenCallers, Peers


def peer(client, trusted=(), **headers):
    scope = {"client": None if client is None else (client, 1234)}
    return (
        OpenCallers(Peers(trusted))
        .admit(scope, {name.replace("_", "-"): value for name, value in headers.items()})
        .peer
    )


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::1"),
        (None, UNKNOWN),
        ("not an address", "not an address"),
    ],
)
def test_whom_a_connection_is_counted_for(client, counted):
    assert peer(client) == counted


@pytest.mark.parametrize(
    ("forwarded", "counted"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("203.0.113.9, 198.51.100.7, 10.0.0.3", "198.51.100.7"),
        ("", "10.0.0.2"),
        ("10.0.0.3", "10.0.0.2"),
        ("x" * 10_000, "x" * 64),
        (", , ,", "10.0.0.2"),
    ],
)
def test_a_trusted_proxy_tells_its_clients(forwarded, counted):
    assert peer("10.0.0.2", ["10.0.0.0/8"], x_forwarded_for=forwarded) == counted


def test_nobody_else_is_believed():
    assert peer("192.0.2.1", ["10.0.0.0/8"], x_forwarded_for="198.51.100.7") == "192.0.2.1"
    assert peer("192.0.2.1", x_forwarded_for="198.51.100.7") == "192.0.2.1"
