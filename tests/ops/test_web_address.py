import unicodedata
from urllib.parse import unquote

import pytest

from pairmill.ops.web_address import _parse, absolute_address, address_key, request_address

BASE = "https://x.example/d/p.html"


@pytest.mark.parametrize(
    ("written", "requested"),
    [
        ("/sig1/http%3A%2F%2Fo.example%2Fa%2Cb.jpg", "https://x.example/sig1/http%3A%2F%2Fo.example%2Fa%2Cb.jpg"),
        ("a%27b%28c%29%40d.jpg?u=%28x%29&s=%2B%3D+b", "https://x.example/d/a%27b%28c%29%40d.jpg?u=%28x%29&s=%2B%3D+b"),
        ("./a,b'(c)@e!$&*;=.jpg?x=:,(@)", "https://x.example/d/a,b'(c)@e!$&*;=.jpg?x=:,(@)"),
        ("my pic.jpg", "https://x.example/d/my%20pic.jpg"),
        ("gr%c3%b6ße.jpg", "https://x.example/d/gr%c3%b6%C3%9Fe.jpg"),
        ("//BÜCHER.example:443/a.jpg#top", "https://xn--bcher-kva.example/a.jpg"),
        ("http://h.example:80?q", "http://h.example/?q"),
        ("..\\img\\a.jpg", "https://x.example/img/a.jpg"),
        (" a\n.jpg\t", "https://x.example/d/a.jpg"),
        ("%2e%2e/./100%.jpg", "https://x.example/100%.jpg"),
        ("http:/127.1/a", "http://127.0.0.1/a"),
        ("http://h.example:99999/", ""),
        ("http://[bad/", ""),
        ("http://a b.example/", ""),
    ],
)
def test_an_address_is_requested_as_a_browser_requests_it(written, requested):
    if requested:
        assert request_address(written, BASE) == requested
    else:
        with pytest.raises(ValueError, match="is no address"):
            request_address(written, BASE)
        assert absolute_address(written, BASE) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://x.example/d/my pic.jpg", "https://x.example/d/my%20pic.jpg"),
        ("https://x.example/größe.jpg?q=ö", "https://X.example:443/gr%C3%B6%c3%9fe.jpg?q=%C3%B6"),
        ("https://x.example/gro\u0308ße.jpg", "https://x.example/größe.jpg"),
        ("https://bücher.example/%7Ea%2C%28b%29", "https://xn--bcher-kva.example/~a,(b)"),
        ("https://x.example", "https://x.example/#top"),
        ("https://x.example/%fc.jpg", "https://x.example/%FC.jpg"),
    ],
)
def test_the_spellings_of_one_address_have_one_key(one, other):
    assert address_key(one) == address_key(other) == address_key(request_address(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://x.example/a%2Fb", "https://x.example/a/b"),
        ("https://x.example/a?b=1%262", "https://x.example/a?b=1&2"),
        ("https://x.example/a%3Fb", "https://x.example/a?b"),
        ("https://x.example/a%2520b", "https://x.example/a%20b"),
        ("https://x.example/A", "https://x.example/a"),
    ],
)
def test_different_addresses_have_different_keys(one, other):
    assert address_key(one) != address_key(other)


def test_long_addresses_are_neither_remembered_nor_normalised():
    marks = "%CC%81%CC%A7"
    short, long = f"https://x.example/a{marks * 100}", f"https://x.example/a{marks * 100_000}"
    assert address_key(short) == unicodedata.normalize("NFC", unquote(short))
    assert address_key(long) == address_key(unquote(long)) == unquote(long)  # NFC would take a minute
    request_address("a.jpg", BASE)
    before = _parse.cache_info().currsize
    assert request_address(f"{'a' * 3000}.jpg", BASE).endswith("a.jpg")
    assert _parse.cache_info().currsize == before


@pytest.mark.parametrize("written", ["a b,c'(d).jpg?x=1", "größe.jpg", "%7ea.jpg", "http://h.example", "//h.example/a"])
def test_an_absolute_address_keeps_its_spelling(written):
    assert absolute_address(written, BASE).endswith(written)
    assert absolute_address(f"  {written}#top\n", BASE) == absolute_address(written, BASE)
