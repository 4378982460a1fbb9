"""Write a drawn sample as CSV for people to judge elsewhere, and read their verdicts back."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.judge.sample_draw import MOST_JUDGED, images_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import DrawnSample, Id, Judgement

COLUMNS = ("sample_id", "position", "image_id", "url", "text", "verdict")


class JudgedLine(BaseModel):
    """One line of a judged file; an empty ``verdict`` is not judged yet, and columns besides these are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sample_id: Id
    position: Annotated[int, Field(ge=0, lt=MOST_JUDGED)]
    image_id: Id
    verdict: Literal["match", "mismatch", "unsure", ""] = ""
    text: str = Field("", max_length=100_000)


def write_sample(gallery: Gallery, sample: DrawnSample, n: int, to: Path, text_of: Callable[[str], str]) -> int:
    """Write the first ``n`` images of a sample with an empty verdict each; return their number.

    ``text_of`` maps an image id to the text that is judged with it.

    Raises PairmillError if the file exists, because it may hold verdicts, or cannot be written.
    """
    images = images_of(gallery, sample, n)
    try:
        with open(to, "x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for position, image in enumerate(images):
                card = gallery.image(image["image_id"]) or {}
                shown = (card.get("url") or "", text_of(image["image_id"]))
                writer.writerow([sample.sample_id, position, image["image_id"], *shown, ""])
    except OSError as error:
        raise PairmillError(f"'{to}' cannot be written ({error.strerror}); name a new file by --to.") from error
    return len(images)


def read_verdicts(gallery: Gallery, samples: Sequence[DrawnSample], file: Path, judge: str) -> list[Judgement]:
    """Return the verdicts of a judged file as judgements by ``judge``.

    Raises PairmillError for a file that is no such CSV, a sample that the lake does not know, and a line whose image
    does not stand at its position of the sample.
    """
    known = {sample.sample_id: sample for sample in samples}
    drawn: dict[str, list[dict[str, Any]]] = {}
    found = []
    for number, line in _lines(file):
        if not line.verdict:
            continue
        sample = known.get(line.sample_id)
        if sample is None:
            raise PairmillError(f"{file}, line {number}: this lake drew no sample '{line.sample_id}' of this version.")
        if line.sample_id not in drawn:
            drawn[line.sample_id] = images_of(gallery, sample)
        images = drawn[line.sample_id]
        if line.position >= len(images) or images[line.position]["image_id"] != line.image_id:
            raise PairmillError(
                f"{file}, line {number}: image '{line.image_id}' is not at this position; keep its line."
            )
        value = images[line.position]["value"]
        found.append(Judgement(sample_id=line.sample_id, position=line.position, image_id=line.image_id,
                               text=line.text, value=value, verdict=line.verdict, judge=judge))  # fmt: skip
    return found


def _lines(file: Path) -> Iterator[tuple[int, JudgedLine]]:
    """Yield the validated lines of a file with their numbers. Raise PairmillError for what is none."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as opened:
            for number, row in enumerate(csv.DictReader(opened), 2):
                row.pop(None, None)  # type: ignore[call-overload]
                yield number, JudgedLine.model_validate({key: value or "" for key, value in row.items()})
    except ValidationError as error:
        fault = error.errors()[0]
        raise PairmillError(
            f"{file}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}. Its columns are {', '.join(COLUMNS)}; a "
            "verdict is match, mismatch, unsure or empty."
        ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PairmillError(f"'{file}' cannot be read as CSV ({error}).") from error
