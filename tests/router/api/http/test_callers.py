import pytest

from router.api.http.callers import UNKNOWN, ClientPeers, OpenCallers, peer_of_address
from router.api.http.headers import headers_of


def peer(client, trusted=(), **headers):
    lines = [(name.replace("_", "-"), value) for name, given in headers.items() for value in given.split("\n")]
    scope = {
        "client": None if client is None else (client, 1234),
        "headers": [(name.encode(), value.encode()) for name, value in lines],
    }
    return OpenCallers(ClientPeers(trusted)).admit(scope, headers_of(scope)).peer


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
        ("203.0.113.9\n198.51.100.7", "198.51.100.7"),
        ("203.0.113.9\n198.51.100.7\n10.0.0.3", "198.51.100.7"),
        ("198.51.100.7:49152", "198.51.100.7"),
        ("[2001:db8::1]:49152", "2001:db8::/64"),
        ("2001:db8::1", "2001:db8::/64"),
        ("::ffff:198.51.100.7, ::ffff:10.0.0.3", "198.51.100.7"),
    ],
)
def test_a_trusted_proxy_tells_its_clients(forwarded, counted):
    assert peer("10.0.0.2", ["10.0.0.0/8"], x_forwarded_for=forwarded) == counted


def test_nobody_else_is_believed():
    assert peer("192.0.2.1", ["10.0.0.0/8"], x_forwarded_for="198.51.100.7") == "192.0.2.1"
    assert peer("192.0.2.1", x_forwarded_for="198.51.100.7") == "192.0.2.1"


def test_a_proxy_is_trusted_by_whatever_socket_it_comes():
    assert peer("::ffff:10.0.0.2", ["10.0.0.0/8"], x_forwarded_for="198.51.100.7") == "198.51.100.7"


def test_addresses_that_are_long_are_not_kept():
    peer_of_address.cache_clear()
    peers = {peer("10.0.0.2", ["10.0.0.0/8"], x_forwarded_for=f"{'x' * 100}{number}") for number in range(8)}
    assert peers == {"x" * 64}
    assert peer_of_address.cache_info().currsize == 1
