"""What hosts say of fetching is read, recorded and heeded: a run against one server on loopback for each kind."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.ops.ban_list import BanList
from pairmill.ops.fetch.address import AllowedAddresses
from pairmill.ops.fetch.fetcher import Fetcher
from pairmill.ops.fetch.host_rules import AI, ROBOTS, TDM, refused, stated_delay
from pairmill.tasks.collect.fetch import FetchPictures, fetch
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.collect.opt_outs import split_slow
from pairmill.tasks.collect.reopen import retry_quarantined
from tests.tasks.test_fetch import url_list
from tests.worlds.shared import new_lake
from tests.worlds.web import Manner, Web, photograph, picture, status, web

OURS = "User-agent: *\nAllow: /\n\nUser-agent: Pairmill\nDisallow: /a\nAllow: /a/ok*.jpg$\n"


@pytest.mark.parametrize(
    ("file", "said", "forbidden"),
    [
        (ROBOTS, OURS, ["/a/1.jpg"]),
        (ROBOTS, "User-agent: other\nDisallow: /\n", []),
        (ROBOTS, "User-agent: *\nDisallow:\n", []),
        (ROBOTS, "\ufeffuser-agent: *\ndisallow: /b # all of b", ["/b/3.png"]),
        (ROBOTS, "\0\x01<html>" * 99, []),
        (TDM, json.dumps([{"location": "/a/*", "tdm-reservation": 1}, {"location": "/a/ok*", "tdm-reservation": 0}]),
         ["/a/1.jpg"]),
        (TDM, '[{"location": "/", "tdm-reservation": 1, "tdm-policy": "https://example.org"}]',
         ["/a/1.jpg", "/a/ok2.jpg", "/b/3.png"]),
        (TDM, '{"location": "/"}', []),
        (TDM, "[1, {}, {]", []),
        (AI, "User-Agent: *\nDisallow: *.jpg\nAllow: *.png\n", ["/a/1.jpg", "/a/ok2.jpg"]),
        (AI, "Disallow: /b/", ["/b/3.png"]),
    ],
)  # fmt: skip
def test_a_file_forbids_what_its_rules_say(file: str, said: str, forbidden: list[str]):
    urls = [f"https://example.org{path}" for path in ("/a/1.jpg", "/a/ok2.jpg", "/b/3.png")]
    assert refused(file, said, urls) == [f"https://example.org{path}" for path in forbidden]


def test_hostile_patterns_take_no_time_that_grows_with_their_stars():
    many = "User-agent: *\nDisallow: /" + "*a" * 40 + "b\nCrawl-delay: 7"
    url = "https://example.org/" + "a" * 300
    assert refused(ROBOTS, many, [url]) == [url] and stated_delay(many) == 7


def test_addresses_of_slow_hosts_are_divided_into_short_items():
    item = WorkItem(
        "s", tuple(f"http://{'slow' if n < 10 else 'quick'}/{n}" for n in range(14)), inputs={"x": [*range(14)]}
    )
    quick, slow = split_slow([item, WorkItem("t", ("http://quick/a",))], {"slow": 30.0})
    assert [each.inputs["x"] for each in slow] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [each.keys for each in quick] == [item.keys[10:], ("http://quick/a",)]


def text(said: str | bytes, **headers: str) -> Manner:
    return lambda handler: handler.answer(200, said if isinstance(said, bytes) else said.encode(), **headers)


# By the last number of its loopback address: manners of a host's paths, beside its pictures /a/1.jpg and /b/2.jpg.
HOSTS: dict[int, dict[str, Manner]] = {
    2: {ROBOTS: text("User-agent: pairmill\nDisallow: /a/\nUser-agent: *\nDisallow: /b/")},
    3: {ROBOTS: status(503)},
    4: {ROBOTS: status(403), AI: status(500)},
    5: {ROBOTS: text(b"User-agent: *\nDisallow: /a/\n#" + b"x" * 5_000_000 + b"\nDisallow: /b/\n")},
    6: {TDM: text('[{"location": "/a/*", "tdm-reservation": 1}]', Content_Type="application/json")},
    7: {AI: text("User-Agent: *\nDisallow: *.jpg\n")},
    8: {"/a/1.jpg": picture(photograph(1), tdm_reservation="1")},
    9: {"/a/1.jpg": picture(photograph(1), X_Robots_Tag="noai")},
    10: {ROBOTS: text("User-agent: *\nCrawl-delay: 1.5\n")},
    11: {ROBOTS: text("User-agent: *\nCrawl-delay: 600\n")},
}
WHY = [
    (2, "/a/1.jpg", "/robots.txt forbids it"),
    (3, "/a/1.jpg", "robots.txt could not be read, which refuses all (RFC 9309)"),
    (3, "/b/2.jpg", "robots.txt could not be read, which refuses all (RFC 9309)"),
    (5, "/a/1.jpg", "/robots.txt forbids it"),
    (6, "/a/1.jpg", "/.well-known/tdmrep.json forbids it"),
    (7, "/a/1.jpg", "/ai.txt forbids it"),
    (7, "/b/2.jpg", "/ai.txt forbids it"),
    (8, "/a/1.jpg", "tdm-reservation: 1"),
    (9, "/a/1.jpg", "X-Robots-Tag: noai"),
    (11, "/a/1.jpg", "it asks for 600 s between requests; at most 60 are kept"),
    (11, "/b/2.jpg", "it asks for 600 s between requests; at most 60 are kept"),
]


@pytest.fixture
def servers() -> Iterator[dict[int, Web]]:
    with ExitStack() as stack:
        running = {n: stack.enter_context(web(f"127.0.0.{n}")) for n in HOSTS}
        for n, server in running.items():
            server.manners |= {
                f"/{path}": picture(photograph(9 * n + k)) for k, path in enumerate(("a/1.jpg", "b/2.jpg"))
            }
            server.manners |= HOSTS[n]
        yield running


@pytest.mark.slow
def test_a_run_heeds_what_each_host_says_records_it_and_tries_again(servers: dict[int, Web], tmp_path: Path):
    times: list[float] = []

    def timed(handler) -> None:
        times.append(time.monotonic())
        handler.answer(200, photograph(len(times)))

    servers[10].manners |= {"/a/1.jpg": timed, "/b/2.jpg": timed}
    of = {f"{server.server_address[0]}:{server.server_address[1]}": n for n, server in servers.items()}
    urls = [server.url(path) for server in servers.values() for path in ("/a/1.jpg", "/b/2.jpg")]
    odd = ["http://[::1/a.jpg", "ftp://example.org/a.jpg"]  # no address to fetch, and no host to ask
    recipe = load_recipe("demo", {"fetch.retries": "0", "opt_outs": "7"})
    compute = Compute.model_validate({"workers": 2, "allow_addresses": ["127.0.0.0/8"]})
    with session(
        recipe, [str(url_list(tmp_path / "list", urls + odd))], str(new_lake(tmp_path / "lake")), compute
    ) as held:
        ingest(held)
        fetch(held)
        sql = "SELECT split_part(item, '/', 3), item, detail FROM quarantine WHERE reason = 'opt_out'"
        found = sorted((of[host], item.split(host)[1], detail) for host, item, detail in held.lake.query(sql))
        assert found == WHY
        refusals = {f"{n}{path}" for n, path, why in WHY if not why.startswith(("tdm", "X-"))}
        asked = {f"{n}{path}" for n, server in servers.items() for path in server.asked}
        assert refusals.isdisjoint(asked) and {f"{n}{file}" for n in HOSTS for file in (ROBOTS, TDM, AI)} <= asked
        assert held.lake.query("SELECT count(*) FROM fetched WHERE reason = ''") == [(len(urls) - len(WHY),)]
        assert times[1] - times[0] > 1  # requests may arrive late, the first one too
        rows = held.lake.query(
            "SELECT split_part(host, '/', 3), file, outcome, http_status, length(said) FROM opt_outs"
        )
        said = {(of[host], file): rest for host, file, *rest in rows}
        assert len(said) == 3 * len(HOSTS)
        assert said[3, ROBOTS] == ["unreachable", 503, 0] and said[4, ROBOTS] == ["absent", 403, 0]
        assert said[5, ROBOTS] == ["read", 200, 500_000] and said[2, TDM] == ["absent", 404, 0]
        before = {n: server.asked[ROBOTS] for n, server in servers.items()}
        fetch(held)  # nothing is pending, and no file is old enough
        assert {n: server.asked[ROBOTS] for n, server in servers.items()} == before
        servers[3].manners[ROBOTS] = status(404)
        servers[7].manners[AI] = status(404)
        retry_quarantined(held, "opt_out")
        left = {of[host] for host, *_ in held.lake.query(sql)}
        assert left == {2, 5, 6, 8, 9, 11} and servers[3].asked[ROBOTS] == 2


def test_pictures_that_do_not_fit_into_memory_are_left_for_a_later_item(tmp_path: Path):
    with web() as server:
        names = [f"/{n}.jpg" for n in range(12)]
        server.manners |= {name: picture(photograph(n)) for n, name in enumerate(names)}
        fetcher = Fetcher(reach=AllowedAddresses(("127.0.0.1/32",)), connections=1, per_host=1, most_held=20_000)
        job = FetchPictures(fetcher, 10**8, BanList.of_entries(defaultdict(frozenset)))
        urls = tuple(map(server.url, names))
        rows = job(WorkItem("s", urls, inputs={"sources": ["list"] * len(urls)}))[0].rows.to_pylist()
    assert 0 < len(rows) < len(urls) and all(row["sha256"] for row in rows)
