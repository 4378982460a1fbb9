"""Formats that other packages declare, and the refusal of broken ones."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.format_examples import PAGE, picture, zip_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.read.declared_formats import GROUP, formats, own_formats
from pairmill.ops.read.source import SourceError, open_source
from tests.worlds.installed import declaring
from tests.worlds.samples import documents, faults, pictures, write

BOOKS = Path(__file__).parents[2] / "packages" / "books"
BROKEN = "from books.epub import Epub\nclass Other(Epub):\n    {}\nFORMAT = Other()\n"
Declare = Callable[[str, str], None]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """``declare(package, entry)`` declares one format; ``books`` is importable."""
    with declaring(monkeypatch, tmp_path / "site", BOOKS, GROUP, formats.cache_clear) as put:
        yield put


def test_a_format_of_another_package_reads_as_those_of_pairmill_until_it_is_gone(tmp_path: Path, declare: Declare):
    project = tomllib.loads((BOOKS / "pyproject.toml").read_text())["project"]
    declare(project["name"], project["entry-points"][GROUP]["epub"])
    book = zip_of({"mimetype": b"application/epub+zip", "c1.xhtml": PAGE, "a.jpg": picture()})
    place = str(write(tmp_path / "shelf", {"book.epub": book}) / "book.epub")
    for uri in (str(tmp_path / "shelf"), place, f"epub:{place}"):
        source = open_source(uri)
        assert [unit.format for unit in source.units()] == ["epub"]
        (document,) = documents(source)
        assert (document.title, [bool(each.data) for each in pictures(document)]) == ("T", [True])
        assert faults(source) == []


def test_a_format_that_no_installed_package_declares_is_unknown(tmp_path: Path):
    assert "epub" not in formats()
    with pytest.raises(SourceError, match="no format is called 'epub'; known are warc"):
        open_source(f"epub:{tmp_path}")


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("1 / 0", "declares the format 'one' as tales_format:FORMAT, which cannot be imported: ZeroDivisionError"),
        ("turn = '1'", "tales_format:FORMAT is no ops.read.document.Format: it has no `turn` of type int"),
        ("read = None", "tales_format:FORMAT is no instance of an ops.read.document.Format with a method `read`"),
        ("name = 'E-Book'", "'E-Book' is no name of 3 to 32 letters, digits and underscores"),
    ],
)
def test_a_broken_format_is_refused_by_its_package_and_the_remedy(
    tmp_path: Path, declare: Declare, body: str, wrong: str
):
    write(tmp_path / "site", {"tales_format.py": BROKEN.format(body)})
    declare("tales", "tales_format:FORMAT")
    with pytest.raises(PairmillError) as refused:
        open_source(str(tmp_path))
    message = str(refused.value)
    assert message.startswith("package 'tales'") and wrong in message and "\n" not in message
    assert message.endswith("Update or uninstall it.")


def test_two_packages_of_one_format_are_refused_by_name(tmp_path: Path, declare: Declare):
    write(tmp_path / "site", {"mine.py": BROKEN.format("name = 'warc'")})
    declare("mine", "mine:FORMAT")
    with pytest.raises(PairmillError, match="the packages 'mine' and 'pairmill' both declare the format 'warc'"):
        formats()


def test_pairmills_own_formats_have_names_and_turns_of_their_own():
    own = own_formats()
    assert len({each.name for each in own}) == len({each.turn for each in own}) == len(own)
