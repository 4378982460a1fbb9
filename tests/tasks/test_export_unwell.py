"""An S3 place that is unwell: what is handed out is whole, or one line says what to do and the next run goes on."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import s3fs

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export import destination
from pairmill.tasks.release.export.export import export
from tests.worlds.data_bucket import bucket
from tests.worlds.published import published
from tests.worlds.unwell import Unwell, unwell

__all__ = ["bucket"]  # a fixture

N = 14
WRITES = 25  # requests of one export, at least
HandOut = Callable[[Lake, str], object]


def growing(lake: Lake, to: str) -> object:
    return export(lake, "small", 1, to, text="caption", grow=True)


def dataset(lake: Lake, to: str) -> object:
    return export(lake, "small", 1, to)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    place = tmp_path_factory.mktemp("unwell") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    with create_or_open(place) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files; waits between requests are the libraries' own business, and here they are short."""
    monkeypatch.setattr("pairmill.tasks.release.export.export.TAR_ROWS", 4)
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0.005)
    monkeypatch.setattr("s3fs.core.asyncio.sleep", _briefly(s3fs.core.asyncio.sleep))


def _briefly(sleep: Callable) -> Callable:
    return lambda seconds, *rest: sleep(min(seconds, 0.005), *rest)


@pytest.fixture
def ill(bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unwell]:
    with unwell(os.environ["AWS_ENDPOINT_URL"], share=0) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        s3fs.S3FileSystem.clear_instance_cache()
        yield proxy


def held(bucket, prefix: str) -> dict[str, bytes]:
    found = bucket.list_objects_v2(Bucket="data", Prefix=f"{prefix}/").get("Contents", [])
    keys = [item["Key"] for item in found]
    return {key.rpartition("/")[2]: bucket.get_object(Bucket="data", Key=key)["Body"].read() for key in keys}


def local(hand_out: HandOut, lake: Lake, folder: Path) -> dict[str, bytes]:
    hand_out(lake, str(folder))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("hand_out", [dataset, growing])
def test_requests_that_fail_now_and_then_are_made_again(
    hand_out: HandOut, lake: Lake, bucket, ill: Unwell, tmp_path: Path
):
    whole = local(hand_out, lake, tmp_path / "whole")
    ill.share = 0.2
    hand_out(lake, f"s3://data/{tmp_path.name}")
    ill.share = 0
    assert held(bucket, tmp_path.name) == whole and ill.n_failed > 2


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", ["500", "503", "reset", "cut"])
@pytest.mark.parametrize("hand_out", [dataset, growing])
def test_a_place_that_falls_ill_for_good_is_told_and_gone_on_with(
    hand_out: HandOut,
    kind: str,
    times: int,
    lake: Lake,
    bucket,
    ill: Unwell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """After any number of requests: nothing that looks whole is not, and no file stands there by half."""
    monkeypatch.setattr("tests.worlds.unwell.ILLS", (kind,))
    whole = local(hand_out, lake, tmp_path / "whole")
    for after in random.Random(kind).sample(range(WRITES), times):
        ill.done.clear()
        place = f"{tmp_path.name}-{after}"
        ill.share, ill.after = 1, after
        with pytest.raises(PairmillError, match=r"cannot be written.*run the same command again") as told:
            hand_out(lake, f"s3://data/{place}")
        assert "\n" not in str(told.value)
        ill.share = 0
        part = held(bucket, place)
        assert {name: data for name, data in part.items() if name != ".progress.json"}.items() <= whole.items()
        hand_out(lake, f"s3://data/{place}")
        assert held(bucket, place) == whole


def test_a_place_that_falls_silent_is_given_up_after_a_dozen_requests(
    lake: Lake, ill: Unwell, monkeypatch: pytest.MonkeyPatch
):
    limits = destination._S3["config_kwargs"] | {"read_timeout": 0.1}
    monkeypatch.setattr(destination, "_S3", {"config_kwargs": limits})
    monkeypatch.setattr("tests.worlds.unwell.ILLS", ("silent",))
    ill.share, ill.after = 1, 12
    with pytest.raises(PairmillError, match=r"cannot be written \(.*imeout.*run the same command again"):
        export(lake, "small", 1, "s3://data/silent")
    assert 9 <= ill.done["silent"] <= 12
