"""Name small files of each format, and show a source's content independently of its address."""

from infra.format_examples import EXAMPLES
from pairmill.ops.fault import Fault
from pairmill.ops.read.source import Document, Picture, Text
from tests.fuzz.inputs import seeds
from tests.worlds.samples import everything

# More shapes of a format than its examples have: fuzz seeds that it reads.
SHAPES = {
    "html_folder": ["page.html", "page16.html"],
    "html_archive": ["s.tar", "s.zip", "s0.zip"],
    "webdataset": ["w.tar", "w.tar.gz"],
    "warc": ["c.warc", "c.warc.gz"],
    "obelics": ["o.parquet"],
    "mmc4": ["m.jsonl"],
    "realsyn": ["r.csv"],
    "image_table": ["i.parquet"],
    "url_list": ["u.parquet", "u.csv", "u.jsonl", "u.jsonl.gz", "u.jsonl.zip"],
    "image_folder": ["a.jpeg", "a.png", "a.webp"],
}


def files_of(format):
    """Return small files of a format by path: those of SHAPES, else those of its examples."""
    if format in SHAPES:
        good = seeds()
        return {name: good[name] for name in SHAPES[format]}
    return {path: data for example in EXAMPLES.get(format, ()) for path, data in example.files().items()}


def shown(source, root):
    """List a source's documents and faults, without the prefix ``root`` of their addresses."""
    found = []
    for each in everything(source):
        if isinstance(each, Fault):
            found.append((each.item.removeprefix(root), each.reason))
            continue
        assert isinstance(each, Document)
        items = [
            item.text if isinstance(item, Text) else (item.url.removeprefix(root), item.alt_text, item.data, _why(item))
            for item in each.items
        ]
        found.append((each.uri.removeprefix(root), each.title, each.metadata, items))
    return found


def _why(picture: Picture) -> str:
    return picture.fault.reason if picture.fault else ""
