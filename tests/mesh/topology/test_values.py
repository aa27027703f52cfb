"""Readers of single values: what each takes, what it makes of it, and what it says of the rest."""

import pytest

from mesh.topology import values
from mesh.topology.values import choice, choices, integer, integers, url_or

INF, NAN = float("inf"), float("nan")
SMALL = integer(1, 9)
AT_LEAST = integer(3)
MANY = integers(1, 9)
WORD = choice(("red", "green"), "a colour", str.upper)
WORDS = choices(("red", "green"), "a colour")
URL_OR = url_or("server", "none")
GPU = "http://gpu-1:8000"


FITS = (
    (values.text, "a", "a"),
    (values.json_lines, "day.jsonl", "day.jsonl"),
    (values.boolean, False, False),
    (SMALL, 1, 1),
    (SMALL, 9, 9),
    (AT_LEAST, 10**9, 10**9),
    (AT_LEAST, 3, 3),
    (MANY, [9, 1, 9], (1, 9)),
    (values.positive, 2, 2.0),
    (values.number, -0.5, -0.5),
    (values.number, 0, 0.0),
    (values.milliseconds, 1500, 1.5),
    (values.milliseconds_or_none, 0, 0.0),
    (values.milliseconds_or_none, 20, 0.02),
    (values.fraction, 1, 1.0),
    (values.fraction, 0.01, 0.01),
    (values.share, 0, 0.0),
    (values.share, 1, 1.0),
    (values.temperature, 0, 0.0),
    (values.temperature, 2, 2.0),
    (values.collector_url, "https://c:4318/x", "https://c:4318/x"),
    (values.server_url, f"{GPU}/v1/", GPU),
    (values.server_url, f"{GPU}/other", f"{GPU}/other"),
    (values.urls, GPU, (GPU,)),
    (values.urls, [GPU, "http://b"], (GPU, "http://b")),
    (values.event_endpoints, "tcp://a:5557", ("tcp://a:5557",)),
    (values.event_endpoints, ["tcp://a:1", "tcp://b:65535"], ("tcp://a:1", "tcp://b:65535")),
    (values.tokenizer, "hf:org/name", "hf:org/name"),
    (values.tokenizer, "server", "server"),
    (values.tokenizer, "file:///models/a", "file:///models/a"),
    (URL_OR, "none", "none"),
    (URL_OR, GPU, GPU),
    (values.served, ["a", "a"], ("a",)),
    (values.served, {"chat": "org/model"}, {"chat": "org/model"}),
    (values.headers, {"x-tenant": "a b~"}, {"x-tenant": "a b~"}),
    (values.fractions, {"a": 0.5}, {"a": 0.5}),
    (values.options, {"eager": True}, {"eager": True}),
    (values.size, "1.5 KiB", 1536),
    (values.size, "2MB", 2_000_000),
    (values.size, "7B", 7),
    (values.names, ["b", "a", "b"], ("b", "a")),
    (values.networks, [], ()),
    (values.networks, ["10.0.0.7", "10.1.2.3/16"], ("10.0.0.7", "10.1.2.3/16")),
    (values.ip_or_any, "*", "*"),
    (values.ip_or_any, "::1", "::1"),
    (values.host, "127.0.0.1", "127.0.0.1"),
    (values.host, "gw_1.example.org.", "gw_1.example.org."),
    (values.host, "::1", "::1"),
    (values.texts, {"zone": "a"}, {"zone": "a"}),
    (WORD, "red", "RED"),
    (WORDS, ["green", "red", "green"], ("green", "red")),
    (WORDS, [], ()),
    (values.device, "cuda:1", "cuda:1"),
    (values.device, "cpu", "cpu"),
    (values.model, "models/a", "models/a"),
    (values.model, "hf:org/name", "hf:org/name"),
    (values.model, "pypi:p==1.0/a/b.gguf", "pypi:p==1.0/a/b.gguf"),
)  # fmt: skip


def test_what_fits_is_read():
    for read, value, found in FITS:
        made = read(value)
        assert (made, type(made)) == (found, type(found)), value


WRONG = (
    (values.text, ["", 1], "is not a text; write it in quotes"),
    (values.json_lines, ["day.json", 1], "use a name that ends in .jsonl"),
    (values.boolean, [1, "true"], "use true or false"),
    (SMALL, [0, 10, True, 1.0], "use a whole number from 1 to 9"),
    (AT_LEAST, [2, "3"], "use a whole number of at least 3"),
    (MANY, [[], 3], "is not a list of whole numbers"),
    (MANY, [[0]], "use a whole number from 1 to 9"),
    (values.positive, [0, -1, INF, NAN, True, "1"], "use a number greater than 0"),
    (values.number, [INF, -INF, NAN, True, "1"], "is not a number"),
    (values.milliseconds_or_none, [False, -1], "use a number greater than 0"),
    (values.fraction, [0, 1.1, True, "1"], "use a fraction above 0 and up to 1"),
    (values.share, [-0.1, 1.1, False, "1"], "use a share from 0"),
    (values.temperature, [-0.1, 2.1, True, "1"], "use a temperature from 0"),
    (values.collector_url, [1], "1 is not a text"),
    (values.collector_url, ["ftp://c", "http://", "http://c?a", "http://c#a", "http://c:0", "http://[c"], "the URL of"),
    (values.collector_url, ["http://u:p@c"], "^holds a password; .* OTEL_EXPORTER_OTLP_HEADERS"),
    (values.server_url, [1], "1 is not a text"),
    (values.server_url, ["gpu-1:8000", "http://a?b", "http://a#b"], "is not the URL of a server"),
    (values.server_url, ["http://u:secret@a:1"], r"^'http://\.\.\.@a:1' holds a password"),
    (values.urls, [[]], r"\[\] names no server"),
    (values.urls, [[GPU, "http://a", f"{GPU}/v1"]], f"^{GPU} is there twice"),
    (values.event_endpoints, ["http://a:1", "tcp://a", "tcp://a:123456", "tcp://a:1/", 5], "is no place of events"),
    (values.event_endpoints, ["tcp://*:5557"], "names no host"),
    (values.tokenizer, ["gh:org/name", "hf:org"], "is no tokenizer"),
    (values.tokenizer, [""], "is not a text"),
    (URL_OR, ["nothing"], "is not the URL of a server"),
    (values.served, [{}, {"chat": ""}, {"chat": 1}], "does not say what the server calls them"),
    (values.served, [[], "a", [1], [""]], "is not a list of names"),
    (values.headers, [{"x y": "a"}, {"": "a"}, {"x\n": "a"}, {"x": "\x1f"}, {"x": "\x7f"}], "is not a header"),
    (values.headers, [{"Content-Type": "a"}], "'Content-Type' is set by the gateway"),
    (values.headers, ["x", {"x": 1}], "is not a table of texts"),
    (values.fractions, [1, ["a"]], "write it like { chat = 0.6"),
    (values.options, [1], "write it like { enforce_eager"),
    (values.size, ["1", "0GiB", "1 TB", "MiB", 5], "is not a size"),
    (values.networks, ["10.0.0.1", [1]], "is not a list of addresses"),
    (values.networks, [["10.0.0.1", "a"]], "'a' is no address and no network"),
    (values.ip_or_any, ["gpu-1", ""], "is no IP address"),
    (values.ip_or_any, [1], "1 is no address"),
    (values.host, ["a b", "a:80", "a..b", "[::1]"], "its port is a key of its own"),
    (WORD, ["gren"], "'gren' is not a colour; did you mean 'green'"),
    (WORD, [1, "zzzzz"], "is not a colour; use "),
    (WORDS, ["red"], "is not a list; write it like"),
    (WORDS, [["blue"]], "'blue' is not a colour"),
    (values.device, ["cuda:", "CPU", 1, "cuda:x"], "is not a device"),
    (values.model, ["gh:a/b"], "is of no known kind"),
    (values.model, ["pypi:p", "pypi:p==1", "hf:org", "hf:a/b/c"], "is incomplete; use "),
)  # fmt: skip


def test_what_does_not_fit_is_said_with_what_would():
    for read, wrong, said in WRONG:
        for value in wrong:
            with pytest.raises(ValueError, match=said):
                read(value)
