"""Archives that were made to harm, or were harmed: what is good in them is kept, the rest is told."""

import gzip
import io
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.read.places import tar_members, unpack, zip_members
from pairmill.ops.read.source import open_source
from tests.examples import examples
from tests.worlds.packed import sample, tar, zipped
from tests.worlds.samples import documents, faults, jpeg, outline, write

SAMPLES = [member for n in range(4) for member in sample(f"{n}", jpeg(), f"Caption {n}.")]


def opened(tmp_path, name, data):
    return open_source(str(write(tmp_path, {name: data})))


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@examples(30)
@given(names=st.lists(st.text("ab é/.-_", min_size=1, max_size=300), max_size=5))
def test_members_are_those_that_the_standard_library_finds(format, names):
    data = tar([(name, name) for name in names], format=format)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        known = [archive.extractfile(each).read() for each in archive.getmembers() if each.isfile()]
        safe = [each.name for each in archive.getmembers() if each.isfile() and not tar_members.is_unsafe(each.name)]
    found = list(tar_members.members(io.BytesIO(data), "t"))
    members = [each for each in found if isinstance(each, tar_members.Member)]
    assert {each.name for each in members} == {tar_members.plain(name) for name in safe}
    assert all(data[each.offset : each.offset + each.size] in known for each in members)


def altered(header: bytes, at: int, field: bytes) -> bytes:
    """A tar header with other bytes from ``at`` on, and the checksum of these."""
    found = header[:at] + field + header[at + len(field) :]
    blank = found[:148] + b" " * 8 + found[156:]
    return found[:148] + b"%06o\0 " % sum(blank) + found[156:]


@pytest.mark.parametrize(
    ("at", "field", "told"),
    [
        (108, b"nobody\0\0", "member a.txt"),
        (136, b"1700000000.5", "member a.txt"),
        (345, b"15302335613\0", "member a.txt"),  # GNU tar writes times where POSIX has the prefix of a name
        (156, b"S", "bad_record"),
    ],
    ids=["owner", "time", "incremental", "sparse"],
)
def test_of_a_header_name_kind_and_size_count_and_a_sparse_file_is_not_read_as_a_plain_one(at, field, told):
    data = tar([("a.txt", b"plain"), ("b.txt", b"next")], format=tarfile.GNU_FORMAT)
    data = altered(data[:512], at, field) + data[512:]
    first, second = tar_members.members(io.BytesIO(data), "t")
    assert told == (f"member {first.name}" if isinstance(first, tar_members.Member) else first.reason)
    assert second.name == "b.txt"


def test_of_a_damaged_gzip_member_nothing_is_read_and_what_came_before_is_kept():
    records = [bytes([letter]) * 1000 for letter in b"abc"]
    packed = [bytearray(gzip.compress(each, compresslevel=0)) for each in records]
    packed[1][500] ^= 1  # a stored byte: only the checksum tells
    stream = unpack.Inflated(io.BytesIO(b"".join(packed)), "t")
    read = b"".join(iter(lambda: stream.read(100_000), b""))
    assert read == records[0] and stream.fault and stream.fault.reason == "bad_record"


def test_links_devices_and_unsafe_names_are_refused_and_their_neighbours_live(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, target in [
            ("link.jpg", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard.jpg", tarfile.LNKTYPE, "../x"),
            ("pipe.jpg", tarfile.FIFOTYPE, ""),
            ("../../up.jpg", tarfile.REGTYPE, ""),
            ("/abs.jpg", tarfile.REGTYPE, ""),
            ("C:\\w.jpg", tarfile.REGTYPE, ""),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
        info = tarfile.TarInfo("good.jpg")
        info.size = len(jpeg())
        archive.addfile(info, io.BytesIO(jpeg()))
    source = opened(tmp_path, "0.tar", out.getvalue())
    assert [fault.reason for fault in faults(source)] == [
        *["unsafe_path"] * 2,
        "bad_record",
        *["unsafe_path"] * 3,
    ]
    assert [outline(document) for document in documents(source)] == [["<0.tar#good.jpg>"]]


def test_the_first_of_two_members_of_one_name_counts(tmp_path):
    source = opened(tmp_path, "0.tar", tar([("a.jpg", jpeg("red")), ("a.jpg", jpeg("blue")), ("b.jpg", jpeg())]))
    (first, _), (fault,) = documents(source), faults(source)
    assert (first.items[0].data, fault.reason) == (jpeg("red"), "bad_record")


@examples(40)
@given(share=st.floats(0.15, 0.99))
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_of_a_cut_tar_what_came_before_the_cut_is_kept_and_the_rest_is_one_fault(tmp_path_factory, mode, share):
    whole = tar(SAMPLES, mode)
    # Not inside the zeros that end a tar.
    size = len(whole) if mode == "w:gz" else len(SAMPLES) * 1024
    folder = tmp_path_factory.mktemp("cut")
    source = opened(folder, "0.tar" + (".gz" if "gz" in mode else ""), whole[: int(size * share)])
    found = documents(source)
    assert all(document.uri.rpartition("#")[2] == str(n) for n, document in enumerate(found))
    # A gzipped tar is cut in two ways at once: the stream and the tar in it.
    assert 1 <= len(faults(source)) <= 1 + ("gz" in mode)
    assert {fault.reason for fault in faults(source)} == {"truncated"}


@pytest.mark.parametrize("n_headers", [0, 600])
def test_a_sparse_header_that_is_cut_or_nested_is_one_fault(n_headers):
    plain = tar([("a.txt", "A.")], format=tarfile.GNU_FORMAT)
    about = tarfile.TarInfo("b.txt")
    about.pax_headers = {"comment": "x"}
    nested = about.create_pax_header(about.get_info(), "utf-8")[:1024] * n_headers
    extended = altered(altered(plain[:512], 156, b"S"), 482, b"\1")
    found = list(tar_members.members(io.BytesIO(plain[:1024] + nested + extended), "t"))
    assert found[0] == tar_members.Member("a.txt", 512, 2)
    assert [each.reason for each in found[1:2]] == ["bad_record"]


def test_of_a_cut_zip_what_came_before_the_cut_is_kept(tmp_path):
    whole = zipped({f"{n}.jpg": jpeg(c) for n, c in enumerate(["red", "green", "blue"])})
    source = opened(tmp_path, "x.zip", whole[: int(len(whole) * 0.5)])
    assert outline(documents(source)[0]) == ["<x.zip#0.jpg>"]
    assert {fault.reason for fault in faults(source)} == {"truncated"}


def test_a_gigabyte_header_is_a_bomb_and_costs_no_memory(tmp_path):
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = b"x", 2**40
    good = tar([("a.jpg", jpeg())]).rstrip(b"\0")
    good += bytes(-len(good) % 512)
    source = opened(tmp_path, "0.tar", good + info.tobuf(tarfile.GNU_FORMAT))
    assert [fault.reason for fault in faults(source)] == ["bomb"]
    assert len(documents(source)) == 1


def test_gzip_and_zip_ratio_bombs_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "ALWAYS_ALLOWED", 2**20)
    monkeypatch.setattr(zip_members, "ALWAYS_ALLOWED", 2**20)
    members = tar([("a.jpg", jpeg()), ("b.jpg", bytes(40 * 2**20))])
    source = opened(tmp_path / "g", "0.tar.gz", gzip.compress(members, 9))
    assert [fault.reason for fault in faults(source)] == ["bomb", "truncated"]
    assert len(documents(source)) == 1
    bomb = zipped({"a.jpg": jpeg(), "b.jpg": bytes(40 * 2**20)})
    source = opened(tmp_path / "z", "x.zip", bomb)
    assert [fault.reason for fault in faults(source)] == ["bomb"]
    assert len(documents(source)) == 1


def test_a_member_of_a_zip_that_says_less_than_it_holds_is_not_read_beyond(tmp_path):
    data = bytearray(zipped({"a.jpg": b"x" * 5000, "b.jpg": jpeg()}))
    at = data.find(b"PK\1\2")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    source = opened(tmp_path, "x.zip", bytes(data))
    found = documents(source)
    assert [outline(document) for document in found] == [["<undecodable>"], ["<x.zip#b.jpg>"]]


def test_damage_and_encryption_inside_a_zip_costs_only_that_member(tmp_path):
    data = bytearray(zipped({"a.jpg": jpeg("red"), "b.jpg": jpeg("blue")}, zipfile.ZIP_STORED))
    data[60:80] = bytes(20)
    source = opened(tmp_path, "x.zip", bytes(data))
    assert [outline(document) for document in documents(source)] == [["<undecodable>"], ["<x.zip#b.jpg>"]]


def test_a_member_of_a_zip_that_gives_less_than_it_says_is_damaged_and_never_without_bytes_and_reason(tmp_path):
    data = bytearray(zipped({"a.jpg": jpeg("red"), "b.jpg": jpeg("blue")}, zipfile.ZIP_STORED))
    at = data.find(b"PK\1\2")
    data[at + 20 : at + 24] = (0).to_bytes(4, "little")  # its packed size
    source = opened(tmp_path, "x.zip", bytes(data))
    assert [outline(document) for document in documents(source)] == [["<undecodable>"], ["<x.zip#b.jpg>"]]


@pytest.mark.parametrize("version", ["0.1", "1.0"])
def test_a_sparse_file_has_its_holes_back_as_the_standard_library_gives_them(version):
    (major, minor), pieces, size = version.split("."), [(0, b"head"), (5000, b"tail")], 6000
    stored = b"".join(data for _, data in pieces)
    numbers = [str(number) for at, data in pieces for number in (at, len(data))]
    about = {"name": "a.bin", "realsize": str(size), "major": major, "minor": minor}
    if version == "0.1":
        about = {"name": "a.bin", "size": str(size), "map": ",".join(numbers)}
    else:
        stored = "\n".join([str(len(pieces)), *numbers, ""]).encode().ljust(512, b"\0") + stored
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, headers in (("GNUSparseFile.0/a.bin", stored, about), ("b.txt", b"last", {})):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), {f"GNU.sparse.{key}": value for key, value in headers.items()}
            archive.addfile(info, io.BytesIO(data))
    with tarfile.open(fileobj=out.__class__(out.getvalue())) as archive:
        known = {each.name: archive.extractfile(each).read() for each in archive}
    found = {each.name: each.read(out) for each in tar_members.members(out, "t")}
    assert found == known
    assert [len(each) for each in found.values()] == [size, 4]
