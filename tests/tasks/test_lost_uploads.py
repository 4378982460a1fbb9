"""An S3 store that loses uploads: the catalog names nothing that is not whole there, one line names the object."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import lease
from pairmill.tasks.release.export.destination import Destination
from pairmill.tasks.run.items.partition import ParquetFile
from tests.worlds.data_bucket import bucket
from tests.worlds.elsewhere import write_yaml
from tests.worlds.lost_uploads import LOSSES, losing
from tests.worlds.published import IMAGE_RULES, plan_of, published

__all__ = ["bucket"]  # a fixture
LARGE = np.random.default_rng(1).bytes(11 * 2**20)  # an upload of three parts


def exported(data: bytes) -> str:
    place = Destination("s3://data/export")
    with place.file("x-000000.tar") as out:
        out.write(data)
    return "s3://data/export/x-000000.tar"


def written(data: bytes) -> str:
    file = ParquetFile("s3://data/lake/main/payloads/run/a.parquet")
    file.write(pa.table({"bytes": [data]}))
    return file.close()[0]


@pytest.mark.parametrize(
    ("data", "loss"), [*((LARGE, loss) for loss in LOSSES), (b"small", "absent")], ids=[*LOSSES, "small"]
)
@pytest.mark.parametrize("write", [exported, written])
def test_an_upload_that_is_lost_is_told_with_its_object(write, data: bytes, loss: str, bucket):
    with losing(loss) as lost, pytest.raises(PairmillError) as told:
        write(data)
    (line,) = str(told.value).splitlines()
    assert lost and f"s3://data/{lost[-1]}" in line and "run the same command again" in line, line
    place = write(data)
    held = bucket.get_object(Bucket="data", Key=place.removeprefix("s3://data/"))["Body"].read()
    assert len(held) >= len(data)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "table"), [("absent", "pairs"), ("absent", "decisions")])
def test_no_version_is_published_whose_files_s3_has_lost(loss: str, table: str, tmp_path: Path, bucket):
    place = write_yaml(tmp_path / "lake", data_path=f"s3://data/{tmp_path.name}").parent
    with losing(loss, f"{tmp_path.name}/main/{table}/") as lost, pytest.raises(PairmillError) as told:
        published(place, pictures=3, faults=())
    assert lost and "\n" not in str(told.value), told.value
    assert lost[-1] in str(told.value)
    plan, _ = plan_of(2, IMAGE_RULES, False, False)
    with create_or_open(str(place)) as lake, lease.writing(lake, "run-2", "test") as writer:
        assert lake.query("SELECT count(*) FROM datasets") == [(0,)]
        cut(lake, plan)
        found = publish(lake, plan, "run-2", 0.9, lambda: writer.begin("publish"))
        assert found.version == 1 and lake.query("SELECT count(*) FROM pairs") == [(found.n_pairs,)]
