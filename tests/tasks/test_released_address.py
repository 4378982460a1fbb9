"""What a pair releases as its picture's address means the same wherever the source stands, and `why` finds it."""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.explain.why import resolve
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.command.cli import main
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from tests.worlds.packed import tar
from tests.worlds.samples import table_bytes, write
from tests.worlds.shared import new_lake, opened_new
from tests.worlds.web import photograph

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def data_uri(n: int) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(photograph(n)).decode()}"


def page(*sources: str) -> str:
    shown = "".join(f'<img src="{source}" alt="A boat.">' for source in sources)
    return f"<html><body><article><p>The old boat waits for the wind.</p>{shown}</article></body></html>"


def images(*pictures: tuple[int, str | None]) -> pa.Array:
    return pa.array([{"bytes": photograph(n), "path": path} for n, path in pictures], STRUCT)


TREE: dict[str, str | bytes] = {
    # The picture 1 is shown by two pages alike, at the same place: which of both is kept must not depend on a path.
    "000/a.html": page("1.jpg", data_uri(2)),
    "000/1.jpg": photograph(1),
    "001/b.html": page("1.jpg"),
    "001/1.jpg": photograph(1),
    "photos/3.jpg": photograph(3),
    "photos/4.jpg": photograph(4),
    "photos/4.json": json.dumps({"url": "https://u:p@x.example/4.jpg?size=2", "caption": "A boat."}),
    "photos/5.jpg": photograph(5),
    "photos/5.json": json.dumps({"url": "https://x.example/5.jpg?X-Amz-Signature=abc", "caption": "A boat."}),
    "photos/6.jpg": photograph(6),
    "photos/6.json": json.dumps({"url": "/home/someone/6.jpg", "caption": "A boat."}),
    "7.tar": tar([("s/01.jpg", photograph(7)), ("s/01.txt", "The old boat waits for the wind.")]),
    "site.tar": tar([("p/c.html", page(data_uri(8), "9.jpg")), ("p/9.jpg", photograph(9))]),
    "t.parquet": table_bytes({"image": images((10, "ten.jpg"), (11, None), (12, "/home/someone/12.jpg"))}),
}
RELEASED = {
    "000/1.jpg", "001/1.jpg", "000/a.html#image=1", "photos/3.jpg", "https://x.example/4.jpg?size=2",
    "https://x.example/5.jpg", "photos/6.jpg#image=0", "7.tar#s/01.jpg", "site.tar#p/c.html&image=0",
    "site.tar#p/9.jpg", "t.parquet#row=0&path=ten.jpg", "t.parquet#row=1&picture=0", "t.parquet#row=2&image=0",
}  # fmt: skip


@contextmanager
def ingested(lake: Path, source: str) -> Iterator[Lake]:
    recipe, compute = load_recipe("demo"), Compute.model_validate({"workers": 1})
    with session(recipe, (source,), str(new_lake(lake)), compute) as held:
        ingest(held)
        yield held.lake


def released(lake: Lake) -> set[str]:
    return {row[0] for row in lake.query(f"SELECT raw_image_url FROM {with_released_address('SELECT * FROM images')}")}


def published(lake: Lake) -> tuple[str, dict[str, str]]:
    """Publish all that was read, with scores given: the content digest, and addresses by picture."""
    content = {"name": "small", "models": {"clip": "open_clip:A/b"}, "images": [], "sentences": []}
    recipe = Recipe.model_validate(content | {"balance": {"cap": 99}, "association": {"max_uses": 1000}})
    scorers = {"image_quality": "q", "image_groups": "g", "balance_clusters": "c", "matches": "m"}
    shas = [sha for (sha,) in lake.query("SELECT DISTINCT sha256 FROM images ORDER BY ALL")]
    said = lake.query("SELECT min(content) FROM sentences")[0][0]
    every = {"sha256": shas, "commit": [9] * len(shas)}
    lake.insert("image_quality", pa.table(every | {"scorer": ["q"] * len(shas), "brightness": [0.5] * len(shas)}))
    found = {"content": [said] * len(shas), "similarity": [0.4] * len(shas), "scorer": ["m"] * len(shas)}
    lake.insert("match_candidates", pa.table(every | found))
    plan = compile_plan(recipe, scorers)
    cut(lake, plan)
    return publish(lake, plan, "run", 1.0, lambda: 10).content_digest, dict(
        lake.query("SELECT sha256, raw_image_url FROM pairs")
    )


def test_every_picture_has_an_address_that_holds_no_path_of_this_machine(tmp_path: Path):
    source = write(tmp_path / "deep/place", TREE)
    with ingested(tmp_path / "lake", str(source)) as lake:
        assert released(lake) == RELEASED
        _, pairs = published(lake)
        assert len(pairs) == len(RELEASED) - 1  # two pages show one picture
        for address in pairs.values():
            (one,) = resolve(lake, address, "").images
            assert lake.query("SELECT image_id FROM pairs WHERE raw_image_url = ?", (address,)) == [(one,)]
        # One that was dropped, by where it stands: pairs know nothing of it.
        kept = pairs[lake.query("SELECT sha256 FROM images WHERE ends_with(url, '/000/1.jpg')")[0][0]]
        (other,) = {"000/1.jpg", "001/1.jpg"} - {kept}
        assert len(resolve(lake, other, "").images) == 1
        assert len(resolve(lake, f"{source}/{other}", "").images) == 1
        lake.execute("DELETE FROM pairs")
        assert len(resolve(lake, "000/a.html#image=1", "").images) == 1


def linked(source: Path) -> str:
    link = source.parent / "link"
    link.symlink_to(source)
    return str(link)


NAMED: dict[str, Callable[[Path], str]] = {"with a slash": lambda source: f"{source}/", "by a link": linked}


@pytest.mark.parametrize("spelled", NAMED.values(), ids=NAMED)
def test_a_source_named_otherwise_releases_the_same_addresses(tmp_path: Path, spelled: Callable[[Path], str]):
    source = write(tmp_path / "place", {name: TREE[name] for name in ("000/a.html", "000/1.jpg")})
    with ingested(tmp_path / "lake", spelled(source)) as lake:
        assert released(lake) == {"000/1.jpg", "000/a.html#image=1"}


@pytest.mark.slow
def test_why_finds_a_released_path_though_a_file_here_has_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    files = {name: TREE[name] for name in ("000/a.html", "000/1.jpg")}
    source = write(tmp_path / "place", files)
    with ingested(tmp_path / "lake", str(source)):
        pass
    monkeypatch.chdir(write(tmp_path / "copy", files))
    for item in ("000/1.jpg", "000/a.html#image=1", f"{source}/000/1.jpg"):
        assert main(["why", item, "--lake", str(tmp_path / "lake")]) == 0
        assert f"{source}/000/a.html, place" in " ".join(capsys.readouterr().out.split())


ALONE = {"7.tar": {"7.tar#s/01.jpg"}, "webdataset:7.tar": {"7.tar#s/01.jpg"}, "photos/3.jpg": {"3.jpg"}}


@pytest.mark.parametrize("name", [*ALONE])
def test_of_a_source_that_is_one_file_its_name_is_left(tmp_path: Path, name: str):
    source = write(tmp_path / "place", TREE)
    format, _, path = name.rpartition(":")
    with ingested(tmp_path / "lake", f"{format}:{source / path}" if format else str(source / path)) as lake:
        assert released(lake) == ALONE[name]


@pytest.mark.slow
def test_the_same_folder_elsewhere_publishes_the_same_dataset(tmp_path: Path):
    """By ids of occurrences, which hold the path, it would be another, and of equal pictures another would be kept."""
    pages = {f"{n:03}/p.html": page("1.jpg") for n in range(4)} | {f"{n:03}/1.jpg": photograph(1) for n in range(4)}
    found = []
    for n, parent in enumerate(("one", "a/third")):
        source = write(tmp_path / parent / "pages", TREE | pages)
        with ingested(tmp_path / f"lake-{n}", str(source)) as lake:
            found.append(published(lake))
        shutil.rmtree(source)
    assert found[0] == found[1]


OWN = {
    "ftp://x.example/a.jpg": "ftp://x.example/a.jpg",
    "s3://bucket/p/a.jpg": "s3://bucket/p/a.jpg",
    "HTTPS://x.example/a.jpg": "HTTPS://x.example/a.jpg",
    "https://u:p@x.example/a.jpg?b=1#c": "https://x.example/a.jpg?b=1#c",
    "https://x.example/a.jpg?b=1&sig=xyz&c=2": "https://x.example/a.jpg",
    "https://x.example/a.jpg?design=1": "https://x.example/a.jpg?design=1",
    "https://x.example/a.jpg#sig=1": "https://x.example/a.jpg#sig=1",
    "file:///data/pages/a.jpg": "p.html#image=2",
    "/data/pages-of-others/a.jpg": "p.html#image=2",
    "/data/pages/a b#1.jpg": "a b#1.jpg",
    "": "p.html#image=2",
}


@pytest.mark.parametrize("url", OWN)
def test_addresses_of_their_own_stay_but_for_secrets(tmp_path: Path, url: str):
    with opened_new(tmp_path / "lake") as lake:
        row = {"document_id": ["d"], "source": ["/data/pages"], "uri": ["/data/pages/p.html"]}
        lake.insert("documents", pa.table(row))
        shown = f"SELECT 'i' AS image_id, 'd' AS document_id, 2 AS position, '{url}' AS url"
        assert lake.query(f"SELECT raw_image_url FROM {with_released_address(shown)}") == [(OWN[url],)]
