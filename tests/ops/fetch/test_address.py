"""No address that is not public is contacted: written in any way, reached by any way."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from pairmill.ops.fetch.address import AllowedAddresses, BlockedAddress, numeric
from pairmill.ops.fetch.fetcher import Fetcher
from pairmill.ops.web_address import request_address
from tests.worlds.name_service import Always
from tests.worlds.web import LOOPBACK, Web, photograph, picture, redirect, web

# missing: a name that this machine does not know at all.
NOT_CONTACTED = ("blocked_address", "bad_record", "missing")
CLOSED = [
    "127.0.0.1", "127.8.9.10", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "0.0.0.0", "192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "2001::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::", "2002:a9fe:a9fe::1",
]  # fmt: skip
OPEN = ["8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8", "2002:808:808::1"]  # fmt: skip
WAYS_TO_WRITE = [
    "http://127.0.0.1:{port}/a.jpg", "http://127.1:{port}/a.jpg", "http://2130706433:{port}/a.jpg",
    "http://0x7f000001:{port}/a.jpg", "http://0177.0.0.1:{port}/a.jpg", "http://0x7f.0.0.1:{port}/a.jpg",
    "http://127.0.0.1.:{port}/a.jpg", "http://[::ffff:127.0.0.1]:{port}/a.jpg", "http://[::1]:{port}/a.jpg",
    "http://[::ffff:7f00:1]:{port}/a.jpg", "http://①②⑦.⓪.⓪.①:{port}/a.jpg", "http://user:secret@127.0.0.1:{port}/a.jpg",
    "http://example.org@127.0.0.1:{port}/a.jpg", "http://localhost:{port}/a.jpg", "http://LOCALHOST.:{port}/a.jpg",
    "http://0:{port}/a.jpg", "http://[::]:{port}/a.jpg", "http://127.0.0.1:{port}\\@example.org/a.jpg",
    "//127.0.0.1:{port}/a.jpg", "file:///etc/passwd", "gopher://127.0.0.1:{port}/a.jpg", "ftp://127.0.0.1:{port}/a",
]  # fmt: skip


@pytest.mark.parametrize("address", CLOSED)
def test_what_is_not_public_is_closed(address: str):
    with pytest.raises(BlockedAddress):
        AllowedAddresses().check(address)


@pytest.mark.parametrize("address", OPEN)
def test_what_is_public_is_open(address: str):
    AllowedAddresses().check(address)


@given(st.ip_addresses(v=4))
def test_every_open_ipv4_address_is_global_by_the_standard_library_too(address: ipaddress.IPv4Address):
    try:
        AllowedAddresses().check(str(address))
    except BlockedAddress:
        return
    assert address.is_global and not address.is_multicast


@given(st.ip_addresses(v=6))
def test_every_open_ipv6_address_that_holds_no_other_is_global_by_the_standard_library(address: ipaddress.IPv6Address):
    try:
        AllowedAddresses().check(str(address))
    except BlockedAddress:
        return
    holds_another = address.sixtofour or address.ipv4_mapped or address in ipaddress.IPv6Network("64:ff9b::/96")
    assert holds_another or (address.is_global and not address.is_multicast)


@given(st.ip_addresses(v=4))
def test_an_allowed_network_opens_itself_and_its_mapped_form_only(address: ipaddress.IPv4Address):
    reach = AllowedAddresses(("10.1.0.0/16",))
    for text in (str(address), f"::ffff:{address}"):
        if address in ipaddress.IPv4Network("10.1.0.0/16"):
            reach.check(text)
        elif not address.is_global:
            with pytest.raises(BlockedAddress):
                reach.check(text)


@given(st.ip_addresses(v=4))
def test_a_number_is_the_address_that_sockets_take_it_for(address: ipaddress.IPv4Address):
    for text in (str(address), str(int(address)), hex(int(address)), f"0{int(address):o}"):
        assert numeric(URL(request_address(f"http://{text}/"), encoded=True).host or "") == str(address)


def test_a_network_that_is_none_is_refused():
    with pytest.raises(ValueError, match="/99"):
        AllowedAddresses(("10.0.0.0/99",))


def contacted(server: Web, fetcher: Fetcher, *urls: str) -> tuple[list[str], int]:
    answers = fetcher(urls)
    assert len(answers) == len(urls)
    return [answer.fault.reason if answer.fault else "" for answer in answers], sum(server.asked.values())


@pytest.mark.parametrize("way", WAYS_TO_WRITE)
def test_no_way_to_write_loopback_reaches_it(way: str):
    with web() as server:
        server.manners["/a.jpg"] = picture(photograph())
        url = way.format(port=server.server_address[1])
        (reason,), n = contacted(server, Fetcher(seconds=2, retries=0), url)
        assert n == 0 and reason in NOT_CONTACTED


@pytest.mark.parametrize("way", [way for way in WAYS_TO_WRITE if way.startswith("http") and way.isascii()])
def test_no_redirect_leads_to_loopback(way: str):
    # One address of loopback stands for the web, the other for the private network.
    with web("127.0.0.2") as server, web() as inner:
        inner.manners["/a.jpg"] = picture(photograph())
        server.manners["/go"] = redirect(way.format(port=inner.server_address[1]))
        fetcher = Fetcher(seconds=2, retries=0, reach=AllowedAddresses(("127.0.0.2/32",)))
        (reason,), n = contacted(server, fetcher, server.url("/go"))
        assert (sum(inner.asked.values()), n) == (0, 1)
        assert reason in NOT_CONTACTED


@pytest.mark.parametrize("where", ["file:///etc/passwd", "gopher://x/", "data:image/png;base64,aaaa", "javascript:1"])
def test_a_redirect_leads_nowhere_but_to_the_web(where: str):
    with web() as server:
        server.manners["/go"] = redirect(where)
        (reason,), _ = contacted(server, Fetcher(reach=AllowedAddresses(LOOPBACK)), server.url("/go"))
        assert reason == "bad_record"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.7", "169.254.169.254", "fd00::1"])
def test_a_name_that_resolves_to_a_closed_address_is_not_contacted(address: str):
    with web() as server:
        server.manners["/a.jpg"] = picture(photograph())
        fetcher = Fetcher(seconds=2, retries=0, lookup=Always((address,)))
        (reason,), n = contacted(server, fetcher, f"http://innocent.example:{server.server_address[1]}/a.jpg")
        assert (reason, n) == ("blocked_address", 0)


def test_a_name_with_one_closed_address_among_open_ones_is_not_contacted():
    with web() as server:
        fetcher = Fetcher(seconds=2, retries=0, lookup=Always(("8.8.8.8", "127.0.0.1")))
        (reason,), n = contacted(server, fetcher, f"http://both.example:{server.server_address[1]}/a.jpg")
        assert (reason, n) == ("blocked_address", 0)


def test_the_socket_itself_refuses_what_a_resolver_let_through(monkeypatch: pytest.MonkeyPatch):
    with web() as server:
        monkeypatch.setattr("pairmill.ops.fetch.names.CachingResolver._check", lambda *_: None)
        monkeypatch.setattr("pairmill.ops.fetch.fetcher.numeric", lambda _: "")
        port = server.server_address[1]
        fetcher = Fetcher(seconds=2, retries=0, max_bytes=12_345, lookup=Always(("127.0.0.1",)))
        reasons, n = contacted(server, fetcher, f"http://a.example:{port}/", f"http://127.0.0.1:{port}/")
        assert (reasons, n) == (["blocked_address"] * 2, 0)
