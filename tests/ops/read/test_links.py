from hypothesis import example, given
from hypothesis import strategies as st

from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.tree import LocalTree

TREE = LocalTree("/nowhere")
PIECES = st.lists(
    st.sampled_from(["..", "/", "\\", "%2e", "%2F", "%00", "a", ".jpg", "?", "#", ":", "//", "C:", "é", "\0", " "])
)


@given(st.one_of(PIECES.map("".join), st.text()), PIECES.map("".join), PIECES.map("".join))
@example("..%5c..%5cx", "", "")
@example("\ud800.jpg", "", "")
def test_no_reference_leads_out_of_the_source_or_raises(reference, base, folder):
    # A listed page lies inside the source.
    page = "/".join([name for name in folder.split("/") if name not in ("", ".", "..")] + ["page.html"])
    link = resolve(TREE, page, reference, base)
    for path in link.paths:
        assert not path.startswith("/") and ".." not in path.split("/") and "\0" not in path
    assert (link.fault is None) == bool(link.paths or link.data)


def test_a_long_path_is_sought_as_written_only():
    assert len(resolve(TREE, "page.html", "a" + "\u0301\u0327" * 100).paths) == 4
    assert len(resolve(TREE, "page.html", "a" + "\u0301\u0327" * 100_000).paths) == 2  # NFC would take a minute


def test_a_relative_base_moves_the_pages_references():
    assert resolve(TREE, "d/page.html", "a.jpg", "../pictures/").paths[0] == "pictures/a.jpg"
    assert resolve(TREE, "d/page.html", "a.jpg", "sub/other.html").paths[0] == "d/sub/a.jpg"
    assert resolve(TREE, "d/page.html", "a.jpg", "/root/").paths[0] == "root/a.jpg"
