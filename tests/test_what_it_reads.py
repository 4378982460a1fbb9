"""Run each command of the docs' table of formats on files of its format, through the real parser and ingest."""

import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from infra.format_examples import EXAMPLES
from pairmill.flows.command.commands import parser
from pairmill.flows.command.pairmill_run import compute_of, overrides
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.read.source import open_source
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run.pool import pool
from tests.worlds.s3 import fresh_filesystem, server, upload
from tests.worlds.samples import documents, faults, pictures, write
from tests.worlds.shared import new_lake

__all__ = ["server"]  # a fixture
ROOT = Path(__file__).resolve().parents[1]
PAGE_OF_FORMATS = (ROOT / "infra/docs/sources.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"\| `(pairmill run [^`]+)`(?= \|)", PAGE_OF_FORMATS)
# The example of each source that the table names, and its format.
PLACES = {example.source: (example, name) for name, found in EXAMPLES.items() for example in found}


@pytest.fixture(scope="module")
def places(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write all sources into one folder and one bucket; start new workers, which know the bucket's endpoint."""
    folder = tmp_path_factory.mktemp("places")
    for example, _ in PLACES.values():
        write(folder, dict(example.files()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.chdir(folder)
        fresh_filesystem()
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        upload(client, folder, "", bucket="bucket")
        pool.dismiss()
        yield folder
    pool.dismiss()
    fresh_filesystem()


def test_the_table_names_a_place_of_every_format_on_this_machine_and_on_s3():
    sources = [shlex.split(command)[-1] for command in COMMANDS]
    assert sorted(sources) == sorted([*PLACES, *(f"s3://bucket/{place}" for place in PLACES)])


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_of_the_table_names_is_found_and_read(places: Path, command: str):
    name = parsed(command).source[0]
    example, format = PLACES[name.removeprefix("s3://bucket/")]
    source = open_source(name)
    assert {unit.format for unit in source.units()} == {format}
    shown = [picture for document in documents(source) for picture in pictures(document)]
    assert [sum(bool(picture.data) for picture in shown), len(shown)] == [
        example.images,
        example.images + example.links,
    ]
    assert faults(source) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "on S3"])
def test_the_commands_of_the_table_ingest_what_they_say(places: Path, tmp_path: Path, where: str):
    """One run reads the sources of all commands, each of which names its own."""
    chosen = [command for command in COMMANDS if ("s3://" in command) == (where == "on S3")]
    given = [
        parsed(each, "--models", "demo", "--lake", str(new_lake(tmp_path / "lake")), "--workers=1") for each in chosen
    ]
    args, sources = given[0], [each.source[0] for each in given]
    assert {each.recipe for each in given} == {args.recipe} and not any(each.set for each in given)
    expected = {}
    for name in sources:
        example, _ = PLACES[name.removeprefix("s3://bucket/")]
        expected[open_source(name).uri] = (example.images, example.links)
    with session(
        load_recipe(args.recipe, overrides(args.set), args.models), sources, args.lake, compute_of(args)
    ) as opened:
        assert ingest(opened) >= 1
        sql = "SELECT count(*) FROM {} SEMI JOIN (FROM documents WHERE source = ?) USING (document_id)"
        for source, (n_images, n_links) in expected.items():
            found = [opened.lake.query(sql.format(table), (source,)) for table in ("images", "links")]
            assert found == [[(n_images,)], [(n_links,)]], source
        assert opened.lake.query("SELECT count(*) FROM quarantine") == [(0,)]
        assert ingest(opened) == 0


def parsed(command: str, *more: str) -> Namespace:
    """Parse a command of the table, with more arguments."""
    return parser().parse_args([*shlex.split(command)[1:], *more])
