"""`pairmill import-bans`: what a list of hashes names stays out, and nothing shows it; what the lake has of it goes."""

import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pairmill.catalog.terms.ids import content_id
from pairmill.flows.command.cli import main
from pairmill.ops.ban_list import BanList, perceptual_hash, read_hashes
from tests.flows.test_takedown import found_in, pictures_in
from tests.worlds.browsed import browsed, ids
from tests.worlds.line import curate, rows
from tests.worlds.samples import write

PAGE = '<p>A red fox sleeps in the sun today.</p><img src="{0}.png" alt="a fox"><img src="copy{0}.jpeg" alt="a fox">'
RECIPE = "{name: plain, models: {}, association: none, duplicates: none, balance: {cap: none}}"
KINDS = ("sha256", "md5", "phash", "pdq")  # of the pictures 0 to 3; picture 4 is in no list


def drawn(n: int) -> bytes:
    blocks = np.random.default_rng(n).integers(0, 255, (12, 14, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(blocks).resize((320, 280), Image.Resampling.BICUBIC).save(out, "png")
    return out.getvalue()


def hash_of(data: bytes, kind: str) -> str:
    if kind == "phash":
        return f"{perceptual_hash(data):016X}"
    if kind == "pdq":
        from pairmill.ops.ban_list import pdq_hash

        return str(pdq_hash(data))
    return hashlib.new(kind, data).hexdigest()


def smaller(data: bytes) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).resize((200, 160)).save(out, "jpeg", quality=80)
    return out.getvalue()


@pytest.mark.slow
def test_a_listed_picture_goes_and_never_comes_in_again_and_no_file_or_page_has_its_bytes(tmp_path: Path, capsys):
    kinds = KINDS if find_spec("pdqhash") else KINDS[:3]  # the extra [pdq]
    datas, copies = [drawn(n) for n in range(5)], [smaller(drawn(n)) for n in range(5)]
    lake, pages = tmp_path / "lake", tmp_path / "pages"
    files = {f"{n}.png": datas[n] for n in range(5)} | {f"{n}.html": PAGE.format(n) for n in range(5)}
    write(tmp_path, {f"pages/{name}": data for name, data in files.items()} | {"plain.yaml": RECIPE})
    curate(lake, pages, recipe=str(tmp_path / "plain.yaml"))
    assert all(found_in(lake, [data]) for data in datas)
    for n, kind in enumerate(kinds):
        listed = tmp_path / f"{kind}.txt"
        listed.write_text(f"# theirs\n{hash_of(datas[n], kind).upper()},about it\n{hash_of(drawn(n + 9), kind)}\n")
        command = ["import-bans", str(listed), "--kind", kind, "--lake", str(lake)]
        before = rows(lake, "SELECT count(*) FROM taken_bans")
        assert main([*command, "--dry-run"]) == 0 and rows(lake, "SELECT count(*) FROM taken_bans") == before
        assert main([*command, "--yes"]) == 0
        said = capsys.readouterr().out
        assert f"2 hashes ({kind}) to ban; 1 pictures of the lake are among them" in said
        assert "1 pairs taken out" in said and hash_of(datas[n], kind).lower() not in said.lower()
    # The same pages with copies beside: lists of looks know these too.
    write(pages, {f"copy{n}.jpeg": copies[n] for n in range(5)})
    write(pages, {f"{n}.html": PAGE.format(n) + "<p>Anew.</p>" for n in range(5)})
    curate(lake, pages, recipe=str(tmp_path / "plain.yaml"))
    refused = {Path(item).name for (item,) in rows(lake, "SELECT item FROM quarantine WHERE reason = 'banned'")}
    of_looks = [n for n, kind in enumerate(kinds) if kind in ("phash", "pdq")]
    assert refused == {f"{n}.png" for n in range(len(kinds))} | {f"copy{n}.jpeg" for n in of_looks}
    banned = [*datas[: len(kinds)], *(copies[n] for n in of_looks)]
    with browsed(lake) as shown:
        page = shown.gallery("/gallery?dataset=plain@2")
        assert len(ids(page)) == 10 - len(banned)
        for data in banned:
            assert shown.client.get(f"/picture/384/{content_id(data)}").status_code == 404
    assert not found_in(lake, banned) and found_in(lake, [datas[4]])
    looks = {look for n in of_looks if (look := perceptual_hash(datas[n])) is not None}
    assert not [each for each in pictures_in(lake) if any((each ^ look).bit_count() <= 4 for look in looks)]


def test_a_list_of_another_kind_is_one_line(tmp_path: Path, capsys):
    (tmp_path / "list.txt").write_text("d41d8cd98f00b204e9800998ecf8427e\nno hash\n")
    (tmp_path / "list.bin").write_bytes(b"\xff\xfe\x00")
    for name, said in (("list.txt", "line 2: no md5 of 32 hex digits"), ("list.bin", "it is no text"),
                       ("none", "No such file")):  # fmt: skip
        assert main(["import-bans", str(tmp_path / name), "--kind", "md5", "--lake", str(tmp_path / "lake")]) == 1
        assert said in (found := capsys.readouterr().err) and found.count("\n") == 1
    assert not (tmp_path / "lake").exists()


def test_pdq_hashes_without_their_package_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pairmill.ops.ban_list.find_spec", lambda name: None)
    entries = {kind: [] for kind in ("picture", "document", "uri", "address", "md5", "phash")}
    with pytest.raises(Exception, match=r"pip install 'pairmill\[pdq\]'"):
        BanList.of_entries(entries | {"pdq": [value for _, value in read_hashes(["0" * 64], "pdq")]})
