"""What files say of themselves, written by Pillow or byte by byte as the programs write it."""

import io
import struct
import zlib

import pytest
from PIL import ExifTags, Image, PngImagePlugin, TiffImagePlugin

from pairmill.ops.image.file_claims import FileClaims, read_claims
from tests.ops.image.test_private_metadata import FORMATS, picture
from tests.worlds.golden import check_golden

TRAINED = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
HEAD = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description '
BOX = b"jumb\0\0\0\x20jumdc2pa\0\x11\0\x10\x80\0\0\xaa\x008\x9bq\x03c2pa\0"


def file(format: str = "JPEG", xmp: str = "", **given) -> bytes:
    if xmp:
        packet = f"{HEAD}{xmp}</rdf:Description></rdf:RDF></x:xmpmeta>"
        if format == "PNG":
            given["pnginfo"] = PngImagePlugin.PngInfo()
            given["pnginfo"].add_itxt("XML:com.adobe.xmp", packet)
        else:
            given["xmp"] = packet.encode()
    out = io.BytesIO()
    Image.effect_noise((64, 48), 60).convert("RGB").save(out, format, **given)
    return out.getvalue()


def png_text(**texts: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    for name, text in texts.items():
        info.add_text(name, text)
    return file("PNG", pnginfo=info)


def exif(**tags: str) -> Image.Exif:
    block = Image.Exif()
    for name, value in tags.items():
        block[ExifTags.Base[name]] = value
    return block


def app11(data: bytes, content: bytes) -> bytes:
    """A JPEG with a C2PA segment (JUMBF in APP11)."""
    return data[:2] + b"\xff\xeb" + struct.pack(">H", len(content) + 2) + content + data[2:]


def chunk(data: bytes, kind: bytes, content: bytes) -> bytes:
    """A PNG with one more chunk behind its IHDR."""
    body = kind + content
    return data[:33] + struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body)) + data[33:]


def comment(text: str) -> Image.Exif:
    block = Image.Exif()
    block.get_ifd(ExifTags.IFD.Exif)[0x9286] = b"UNICODE\0" + text.encode("utf-16-be")
    return block


BY_AI = [
    (file(xmp=f'Iptc4xmpExt:DigitalSourceType="{TRAINED}">'), "digital_source_type", "trainedAlgorithmicMedia"),
    (file("WEBP", f'a:DigitalSourceType="{TRAINED}">'), "digital_source_type", "trainedAlgorithmicMedia"),
    (file("PNG", f"><a:DigitalSourceType>{TRAINED.replace('/tr', '/compositeWithTr')}</a:DigitalSourceType>"),
     "digital_source_type", "compositeWithTrainedAlgorithmicMedia"),
    (app11(file(), BOX + b"qdigitalSourceTypexF" + TRAINED.encode()), "c2pa", "trainedAlgorithmicMedia"),
    (chunk(file("PNG"), b"caBX", BOX + TRAINED.encode()), "c2pa", "trainedAlgorithmicMedia"),
    (app11(file(), BOX + b"oclaim_generatorpOpenAI-API/1.0"), "c2pa", "OpenAI"),
    (png_text(parameters="a cat\nSteps: 20, Sampler: Euler a, CFG scale: 7"), "png_text", "parameters"),
    (png_text(prompt='{"3": {}}', workflow="{}"), "png_text", "prompt"),
    (file(exif=comment("a cat\nSteps: 20, Sampler: Euler a")), "parameters", "Steps: 20, Sampler: Euler a"),
    (file(exif=exif(Software="Midjourney 6")), "software", "Midjourney"),
    (png_text(Software="NovelAI"), "software", "NovelAI"),
    (file(xmp='xmp:CreatorTool="Adobe Firefly">'), "software", "Adobe Firefly"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "mark", "evidence"), BY_AI)
def test_a_mark_of_ai_is_named_with_its_evidence(data: bytes, mark: str, evidence: str):
    found = read_claims(data)
    assert (found["ai_made"], found["ai_evidence"]) == (mark, evidence)


@pytest.mark.parametrize(
    "data",
    [
        file(),
        file("PNG"),
        png_text(Software="Adobe Photoshop", Comment="the workflow and its parameters"),
        file(exif=exif(Software="GIMP 2.10", ImageDescription="not by Midjourney")),
        file(xmp=f'a:DigitalSourceType="{TRAINED.replace("trainedAlgorithmicMedia", "digitalCapture")}">'),
        app11(file(), BOX + b"claim_generatorqLeica M11-P/2.0"),
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\0\0\0\0WEBP" + b"\0" * 99,
    ],
)
def test_other_files_are_not_said_to_be_made_by_ai(data: bytes):
    assert read_claims(data)["ai_made"] == ""


@pytest.mark.parametrize("format", FORMATS)
def test_owner_and_place_are_seen_in_every_format_that_has_them(format: str):
    found = read_claims(picture(format, 3))
    assert found["exif_rights"] == ("" if format in ("gif", "bmp") else "Ada-of-7731")
    assert found["has_gps"] == (format not in ("gif", "bmp", "tiff"))  # Pillow writes none into a TIFF
    assert not read_claims(file())["has_gps"]
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[ExifTags.IFD.GPSInfo] = 8
    assert read_claims(file("TIFF", tiffinfo=tags))["has_gps"]


def test_rights_come_from_xmp_then_exif_then_iptc():
    xmp = (
        'xmpRights:WebStatement="https://example.org/terms?a=1&amp;b=2">'
        '<cc:license rdf:resource="https://creativecommons.org/licenses/by/4.0/"/>'
        '<dc:rights><rdf:Alt><rdf:li xml:lang="x-default">© 2024 Zoë</rdf:li></rdf:Alt></dc:rights>'
        "<dc:creator>\n<rdf:Seq>\n<rdf:li>Zoë</rdf:li></rdf:Seq></dc:creator>"
    )
    found = read_claims(file(xmp=xmp, exif=exif(Copyright="Exif", Artist="Exif")))
    wanted = ("https://creativecommons.org/licenses/by/4.0/", "© 2024 Zoë", "Zoë")
    assert (found["file_licence"], found["exif_rights"], found["file_creator"]) == wanted
    assert read_claims(file(xmp=xmp.split("<cc")[0]))["file_licence"] == "https://example.org/terms?a=1&b=2"
    iptc = b"Photoshop 3.0\08BIM\x04\x04\0\0\0\0\0\x1a\x1c\x02\x50\0\x03Ada\x1c\x02\x74\0\x08(c) 2020"
    data = file()
    data = data[:2] + b"\xff\xed" + struct.pack(">H", len(iptc) + 2) + iptc + data[2:]
    assert (read_claims(data)["exif_rights"], read_claims(data)["file_creator"]) == ("(c) 2020", "Ada")


def test_the_version_gives_what_it_gave():
    files = [BY_AI[3][0], BY_AI[9][0], file(exif=exif(Copyright="(c) Ada", Artist="Ada")), file()]
    found = FileClaims()({"encoded": files})
    check_golden("file_claims", FileClaims.version, {name: found[name] for name in found if name != "encoded"})
