"""A lake with its catalog on Postgres and its data on S3 is checked and repaired like a local one."""

from pathlib import Path

import pytest
import s3fs

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.tasks.upkeep.lake_check import check_lake
from pairmill.tasks.upkeep.repair import repair
from tests.worlds.elsewhere import postgres as postgres
from tests.worlds.elsewhere import remote_partition, write_yaml
from tests.worlds.elsewhere import s3 as s3


@pytest.mark.slow
def test_a_lost_object_is_named_and_its_rows_are_pending_again(
    tmp_path: Path,
    s3: s3fs.S3FileSystem,
    postgres: str,
) -> None:
    place = write_yaml(tmp_path / "lake", metadata=postgres, data_path="s3://bucket/lake")
    with create_or_open(place) as lake:
        with lease.writing(lake, "run", "test") as writer:
            lost, kept, cut = (remote_partition(lake, s3, name) for name in ("lost", "kept", "cut"))
            writer.commit([lost, kept, cut])
        assert check_lake(lake, deep=True).damages == ()
        s3.rm(lost.path)
        s3.pipe(cut.path, s3.cat(cut.path)[:-4])
        s3.invalidate_cache()
        damages = check_lake(lake).damages
        assert [(each.trouble, each.path.split("/")[-1]) for each in damages] == [
            ("damaged", "cut.parquet"),
            ("gone", "lost.parquet"),
        ]
        assert list(repair(lake, damages, lambda _: None))
        assert check_lake(lake, deep=True).damages == ()
        assert lake.query("SELECT sha256 FROM image_hash") == [("kept",)]
        with lease.writing(lake, "again", "test") as writer:
            assert writer.commit([remote_partition(lake, s3, "lost")]) == 1
