"""Manners of a fetch: what is asked how often, how many at once, and what every kind of answer becomes."""

import gzip
import socket
import time
import zlib
from collections.abc import Iterator

import pytest

from pairmill.ops.ban_list import Banned
from pairmill.ops.fetch.address import AllowedAddresses
from pairmill.ops.fetch.fetcher import Fetcher, FetchResult
from pairmill.ops.opt_out import find_opt_out
from tests.worlds.name_service import Always
from tests.worlds.web import (
    LOOPBACK,
    Web,
    cut_short,
    drip,
    first,
    photograph,
    picture,
    redirect,
    status,
    unannounced,
    web,
)

PHOTO = photograph()
REACH = AllowedAddresses(LOOPBACK)


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairmill.ops.fetch.fetcher.FIRST_PAUSE", 0.01)


def fetched(server: Web, *paths: str, fetcher: Fetcher | None = None) -> list[FetchResult]:
    return (fetcher or Fetcher(reach=REACH, seconds=5))([server.url(path) for path in paths])


def reason(answer: FetchResult) -> str:
    return answer.fault.reason if answer.fault else ""


def test_answers_come_in_the_order_asked_with_the_bytes_as_they_are(server: Web):
    for n in range(40):
        server.manners[f"/{n}"] = picture(photograph(n), Content_Type="text/html", ETag=f'"{n}"')
    answers = fetched(server, *(f"/{n}" for n in range(40)))
    assert [answer.data for answer in answers] == [photograph(n) for n in range(40)]
    assert [answer.etag for answer in answers] == [f'"{n}"' for n in range(40)]
    assert {(answer.http_status, answer.attempts, answer.content_type) for answer in answers} == {(200, 1, "text/html")}


@pytest.mark.parametrize("code", [500, 502, 503, 429])
def test_what_may_pass_is_asked_again_and_counts_its_attempts(server: Web, code: int):
    server.manners["/a"] = first(2, status(code), picture(PHOTO))
    (answer,) = fetched(server, "/a")
    assert (answer.data, answer.attempts, server.asked["/a"]) == (PHOTO, 3, 3)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 451])
def test_what_does_not_pass_is_asked_once(server: Web, code: int):
    server.manners["/a"] = status(code)
    (answer,) = fetched(server, "/a")
    assert (reason(answer), answer.http_status, answer.passing, server.asked["/a"]) == ("http_status", code, False, 1)
    assert answer.fault and answer.fault.detail == f"HTTP {code}"


def test_what_never_passes_ends_after_its_retries_and_may_be_tried_another_day(server: Web):
    server.manners["/a"] = status(503)
    (answer,) = fetched(server, "/a", fetcher=Fetcher(reach=REACH, retries=1))
    assert (reason(answer), answer.passing, server.asked["/a"]) == ("http_status", True, 2)


def test_a_host_that_asks_for_patience_is_left_alone_for_so_long(server: Web):
    server.manners["/soon"] = first(1, status(429, Retry_After="1"), picture(PHOTO))
    server.manners["/late"] = status(503, Retry_After="3600")
    server.manners["/date"] = status(503, Retry_After="Wed, 21 Oct 2099 07:28:00 GMT")
    started = time.monotonic()
    soon, late, date = fetched(server, "/soon", "/late", "/date")
    assert soon.data == PHOTO and time.monotonic() - started >= 1.0
    assert [(reason(a), a.passing, server.asked[p]) for a, p in ((late, "/late"), (date, "/date"))] == [
        ("http_status", True, 1)
    ] * 2


# Raw bytes: a superscript two in UTF-8, and none that is UTF-8.
@pytest.mark.parametrize("said", ["Mon, 01 Jan 99999999999 00:00:00 GMT", "9" * 5000, "\xc2\xb2", "\xff", "later"])
def test_patience_that_is_asked_for_in_no_known_way_costs_nothing_but_the_answer(server: Web, said: str):
    server.manners["/a"] = status(503, Retry_After=said)
    (answer,) = fetched(server, "/a", fetcher=Fetcher(reach=REACH, retries=0))
    assert (reason(answer), answer.http_status, answer.passing) == ("http_status", 503, True)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (
            "/sig1/http%3A%2F%2Fo.example%2Fa%2Cb.jpg?s=%2B%28%29",
            "/sig1/http%3A%2F%2Fo.example%2Fa%2Cb.jpg?s=%2B%28%29",
        ),
        ("/a%27b%28c%29%40d,(e).jpg", "/a%27b%28c%29%40d,(e).jpg"),
        ("/my größe.jpg", "/my%20gr%C3%B6%C3%9Fe.jpg"),
    ],
)
def test_what_is_requested_is_what_is_written_in_a_list_and_in_a_location(server: Web, written: str, asked: str):
    server.manners[asked.partition("?")[0]] = picture(PHOTO)
    # A server writes its Location in bytes: UTF-8, which the test's server takes as Latin-1.
    server.manners["/moved"] = redirect(written.encode().decode("latin-1"))
    assert [answer.data for answer in fetched(server, written, "/moved")] == [PHOTO] * 2
    assert (server.asked[asked], sum(server.asked.values())) == (2, 3)


def test_another_spelling_of_a_banned_address_is_banned(server: Web):
    banned = Banned((server.url("/private/"),))
    answers = fetched(server, "/%70rivate/a.jpg", "/x/../private/a.jpg", fetcher=Fetcher(reach=REACH, banned=banned))
    assert [reason(answer) for answer in answers] == ["banned"] * 2 and not server.asked


def test_a_slow_answer_ends_in_time_and_may_pass(server: Web):
    server.manners["/a"] = drip(PHOTO, 3.0)
    (answer,) = fetched(server, "/a", fetcher=Fetcher(reach=REACH, seconds=0.2, retries=1))
    assert (reason(answer), answer.passing, answer.attempts) == ("timeout", True, 2)


def test_waiting_for_a_turn_is_no_time_out(server: Web):
    def slow(handler) -> None:
        time.sleep(0.3)
        handler.answer(200, PHOTO)

    server.manners["/a"] = slow
    answers = fetched(server, *["/a"] * 8, fetcher=Fetcher(reach=REACH, per_host=1, seconds=2, retries=0))
    assert [answer.data for answer in answers] == [PHOTO] * 8
    assert server.most_open == 1


def test_no_host_gets_more_connections_than_its_share(server: Web):
    def slow(handler) -> None:
        time.sleep(0.02)
        handler.answer(200, PHOTO)

    with web() as other:
        for each in (server, other):
            each.manners["/a"] = slow
        fetcher = Fetcher(reach=REACH, per_host=3, connections=4, seconds=6)
        fetcher([url for _ in range(20) for url in (server.url("/a"), other.url("/a"))])
        assert server.most_open <= 3 and other.most_open <= 3


def test_a_body_that_ends_early_is_truncated_and_may_pass(server: Web):
    server.manners["/a"] = cut_short(PHOTO)
    (answer,) = fetched(server, "/a")
    assert (reason(answer), answer.passing, server.asked["/a"]) == ("truncated", True, 3)


def test_a_refused_connection_is_missing_and_may_pass(server: Web):
    (answer,) = Fetcher(reach=REACH, retries=0)(["http://127.0.0.1:1/a"])
    assert (reason(answer), answer.passing, answer.http_status) == ("missing", True, 0)


@pytest.mark.parametrize(("error", "passing"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)])
def test_a_name_that_is_none_is_missing_for_good_and_one_that_cannot_be_asked_for_now(error: int, passing: bool):
    def unknown(host: str, port: int, family: int) -> list:
        raise socket.gaierror(error, "not known")

    (answer,) = Fetcher(retries=0, lookup=unknown)(["http://some.example/a"])
    assert (reason(answer), answer.passing) == ("missing", passing)


def test_redirects_are_followed_as_far_as_five(server: Web):
    for n in range(8):
        server.manners[f"/{n}"] = redirect(f"/{n + 1}")
    server.manners["/8"] = picture(PHOTO)
    good, bad = fetched(server, "/3", "/2")
    assert good.data == PHOTO and good.final_url == server.url("/8")
    assert reason(bad) == "too_many_redirects" and not bad.passing


def test_redirects_in_a_circle_end(server: Web):
    server.manners["/a"] = redirect("/b")
    server.manners["/b"] = redirect("/a")
    (answer,) = fetched(server, "/a")
    assert (reason(answer), sum(server.asked.values())) == ("too_many_redirects", 6)


def test_too_large_a_body_is_not_read_to_its_end(server: Web):
    server.manners["/said"] = picture(PHOTO, Content_Length="1000000")
    server.manners["/unsaid"] = unannounced(PHOTO * 40)
    said, unsaid = fetched(server, "/said", "/unsaid", fetcher=Fetcher(reach=REACH, max_bytes=len(PHOTO)))
    assert (reason(said), reason(unsaid)) == ("too_large", "too_large")


@pytest.mark.parametrize(("packing", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_packed_body_is_unpacked_as_far_as_the_limit(server: Web, packing: str, pack):
    server.manners["/good"] = picture(pack(PHOTO), Content_Encoding=packing)
    server.manners["/bomb"] = picture(pack(PHOTO + bytes(50_000_000)), Content_Encoding=packing)
    server.manners["/bad"] = picture(b"no such thing", Content_Encoding=packing)
    server.manners["/odd"] = picture(PHOTO, Content_Encoding="zstd")
    good, bomb, bad, odd = fetched(
        server, "/good", "/bomb", "/bad", "/odd", fetcher=Fetcher(reach=REACH, max_bytes=10**6)
    )
    assert good.data == PHOTO
    assert [reason(each) for each in (bomb, bad, odd)] == ["too_large", "undecodable", "undecodable"]


def test_a_page_behind_a_picture_s_address_is_no_picture_whatever_it_calls_itself(server: Web):
    server.manners["/page"] = picture(b"<!DOCTYPE html>" + b"<p>words" * 9999, Content_Type="image/jpeg")
    server.manners["/short"] = picture(b"<p>", Content_Type="image/jpeg")
    server.manners["/nothing"] = picture(b"", Content_Type="image/jpeg")
    assert [reason(each) for each in fetched(server, "/page", "/short", "/nothing")] == [
        "not_an_image",
        "not_an_image",
        "empty",
    ]


@pytest.mark.parametrize("tag", ["noai", "noimageai", "noindex", "NoImageIndex", "none", "nofollow, noai",
                                 "pairmill: noindex", "*: noai", "unavailable_after: 1 Jan 2099, noai"])  # fmt: skip
def test_who_opts_out_is_heeded(server: Web, tag: str):
    server.manners["/a"] = picture(PHOTO, X_Robots_Tag=tag)
    (answer,) = fetched(server, "/a")
    assert (reason(answer), answer.data, answer.passing) == ("opt_out", b"", False)


@pytest.mark.parametrize("tag", ["", "all", "nofollow", "otherbot: noindex", "max-image-preview: large"])
def test_what_is_said_to_others_or_of_other_things_is_no_opt_out(tag: str):
    assert find_opt_out([tag]) == ""


def test_every_header_of_the_name_counts(server: Web):
    assert find_opt_out(["otherbot: noindex", "noai"]) == "noai"
    assert find_opt_out(["otherbot: noindex, pairmill: noai"]) == "noai"
    assert find_opt_out(["max-image-preview: none, unavailable_after: 1 Jan 2099 10:00, nofollow noai"]) == "noai"
    assert find_opt_out(["max-image-preview: none; all"]) == ""
    assert find_opt_out(["unavailable_after: Friday, 25-Jun-10 15:00:00 GMT, noindex"]) == "noindex"
    assert find_opt_out(["noindex otherbot: all"]) == "noindex"
    assert find_opt_out(["otherbot: unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, noindex"]) == ""


def test_banned_hosts_and_beginnings_are_not_asked(server: Web):
    port = server.server_address[1]
    fetcher = Fetcher(
        reach=REACH, lookup=Always(("127.0.0.1",)), banned=Banned(("Bad.Example", server.url("/private/")))
    )
    server.manners["/a"] = server.manners["/private"] = picture(PHOTO)
    urls = ["http://bad.example:{}/a", "http://sub.BAD.example.:{}/a", "http://notbad.example:{}/a"]
    answers = fetcher([*(url.format(port) for url in urls), server.url("/private/a"), server.url("/private")])
    assert [reason(answer) for answer in answers] == ["banned", "banned", "", "banned", ""]


def test_a_ban_holds_behind_a_redirect_too(server: Web):
    server.manners["/a"] = redirect("http://bad.example/b")
    (answer,) = fetched(server, "/a", fetcher=Fetcher(reach=REACH, banned=Banned(("bad.example",))))
    assert reason(answer) == "banned"


def test_a_name_is_asked_once_however_many_wait_for_it(server: Web):
    names = Always(("127.0.0.1",))
    server.manners["/a"] = picture(PHOTO)
    fetcher = Fetcher(reach=REACH, lookup=names, connections=32, per_host=32)
    for _ in range(2):
        fetcher([f"http://some.example:{server.server_address[1]}/a"] * 30)
    assert names.n == 1


def test_what_is_held_is_bounded_and_the_rest_is_left_for_another_time(server: Web):
    server.manners["/a"] = picture(PHOTO)
    fetcher = Fetcher(reach=REACH, connections=1, per_host=1, most_held=10 * len(PHOTO))
    answers = fetched(server, *["/a"] * 60, fetcher=fetcher)
    assert len(answers) == 10 and all(answer.data == PHOTO for answer in answers)


@pytest.mark.parametrize("url", ["", "x", "http://", "http:///a.jpg", "http://a b/", "http://[", "http://x:99999/",
                                 "http://\ud800/", "http://" + "a" * 300 + ".example/", "http://x\0y/", "//x/y",
                                 "HTTP://[::1", "http://%00/", "mailto:a@b", "http://xn--/"])  # fmt: skip
def test_any_text_is_an_answer(url: str):
    (answer,) = Fetcher(seconds=2, retries=0)([url])
    assert reason(answer) in ("bad_record", "missing", "blocked_address")


def test_bodies_that_are_still_being_read_count_as_held(server: Web):
    large = PHOTO + bytes(400_000)
    urls = [server.url(f"/{n}.jpg") for n in range(12)]
    for n in range(12):
        server.manners[f"/{n}.jpg"] = picture(large)
    fetcher = Fetcher(reach=REACH, connections=12, per_host=12, most_held=1_000_000)
    answers = fetcher(urls)
    assert 1 <= len(answers) <= 4  # of 0.4 MB each; 12 were asked for at once
    assert all(answer.data == large for answer in answers)
