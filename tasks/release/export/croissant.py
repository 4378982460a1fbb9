"""Describe an export as Croissant JSON-LD (MLCommons, version 1.0): files, columns, recipe, funnel and sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import columns
from pairmill.catalog.queries.datasets import Dataset, funnel
from pairmill.catalog.queries.export.exports import licences, rows_of_pairs, web_hosts
from pairmill.tasks.release.export.parquet_tables import IMAGE
from pairmill.tasks.release.gallery.concepts import Concept

CROISSANT = ".croissant.json"
_MEDIA = {"tar": "application/x-tar", "parquet": "application/x-parquet", "json": "application/json"}
_KINDS = {**columns("pairs"), "n_tokens": "INTEGER", "occurrences": "BIGINT"}
_LISTS = ("captions", "conversations", "images", "texts", "image_bytes")
_TYPES = {"INTEGER": "sc:Integer", "BIGINT": "sc:Integer", "DOUBLE": "sc:Float"}
# The context that the specification prescribes word for word.
_CONTEXT: dict[str, Any] = {
    "@language": "en", "@vocab": "https://schema.org/", "citeAs": "cr:citeAs", "column": "cr:column",
    "conformsTo": "dct:conformsTo", "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/", "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"}, "extract": "cr:extract", "field": "cr:field",
    "fileProperty": "cr:fileProperty", "fileObject": "cr:fileObject", "fileSet": "cr:fileSet",
    "format": "cr:format", "includes": "cr:includes", "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath", "key": "cr:key", "md5": "cr:md5", "parentField": "cr:parentField",
    "path": "cr:path", "recordSet": "cr:recordSet", "references": "cr:references", "regex": "cr:regex",
    "repeated": "cr:repeated", "replace": "cr:replace", "sc": "https://schema.org/", "separator": "cr:separator",
    "source": "cr:source", "subField": "cr:subField", "transform": "cr:transform",
}  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What a Croissant description says of an export.

    Attributes:
        name: The name of the dataset.
        version: Three numbers, such as 1.0.0.
        about: A sentence that says what the export is.
        published: When its content was made.
        hosts: The web hosts of its pictures.
        licences: The licences that came along with its documents. The publisher adds a licence of the whole.
        steps: How it was made: the recipe, and each rule with its counts.
        gaps: What it lacks, by concept.
    """

    name: str
    version: str
    about: str
    published: datetime
    hosts: Sequence[str]
    licences: Sequence[str]
    steps: Sequence[str]
    gaps: Sequence[str] = ()


def of_version(lake: Lake, dataset: Dataset, about: str, gaps: Sequence[Concept] = ()) -> Description:
    """Describe a dataset version. ``gaps``: counted concepts, listed by the share of pictures that they lose."""
    rows = rows_of_pairs(dataset)
    return Description(
        dataset.name,
        f"{dataset.version}.0.0",
        about,
        dataset.created_at,
        web_hosts(lake, rows),
        licences(lake, rows),
        [f"Recipe of Pairmill: {dataset.recipe}", *_steps(lake, dataset)],
        [_gap(each) for each in sorted(gaps, key=lambda each: (-_lost(each), each.name))],
    )


def croissant(said: Description, files: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the JSON-LD of an export.

    Args:
        said: `rai:dataPreprocessingProtocol` has its steps, `rai:dataBiases` its gaps, `isBasedOn` its hosts.
        files: The glob of the data files, which form one FileSet.
        names: The columns, in a RecordSet; none for tars, whose members Croissant cannot join to rows.
    """
    found = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": said.name,
        "version": said.version,
        "description": said.about,
        "datePublished": f"{said.published:%Y-%m-%d}",
        "isBasedOn": [*said.hosts],
        **({"license": [*said.licences]} if said.licences else {}),
        "rai:dataPreprocessingProtocol": [*said.steps],
        **({"rai:dataBiases": [*said.gaps]} if said.gaps else {}),
        "distribution": [
            {
                "@type": "cr:FileSet",
                "@id": "files",
                "name": "files",
                "encodingFormat": _MEDIA[files.rpartition(".")[2]],
                "includes": files,
            }
        ],
    }
    if names:
        rows = {"@type": "cr:RecordSet", "@id": "rows", "name": "rows"}
        found["recordSet"] = [rows | {"field": [_field(name) for name in names]}]
    return found


def _lost(concept: Concept) -> float:
    """Return the share of the pictures with a vector that a version drops of a concept; 0 if none shows it."""
    return concept.dropped / max(1, concept.pictures + concept.dropped)


def _gap(concept: Concept) -> str:
    """Return a line on a concept."""
    line = f"{concept.name}: {concept.pictures} pictures kept, {concept.dropped} dropped, {concept.texts} texts"
    return f"{line}; {concept.rule} drops most ({concept.dropped_by_rule})" if concept.rule else line


def _steps(lake: Lake, dataset: Dataset) -> list[str]:
    """Return a line for each rule of the funnel."""
    return [f"{step.kind} {step.rule}: {step.n_in} in, {step.n_dropped} dropped" for step in funnel(lake, dataset)]


def _field(name: str) -> dict[str, Any]:
    """Return the description of one column."""
    kind = _KINDS.get(name, "VARCHAR")
    extract: dict[str, Any] = {"fileSet": {"@id": "files"}, "extract": {"column": name}}
    if name == IMAGE:
        extract["transform"] = {"jsonPath": "bytes"}
    repeated = {"repeated": True} if kind.endswith("[]") or name in _LISTS else {}
    data_type = "sc:ImageObject" if name in (IMAGE, "image_bytes") else _TYPES.get(kind.removesuffix("[]"), "sc:Text")
    return {
        "@type": "cr:Field", "@id": f"rows/{name}", "name": name, "dataType": data_type, "source": extract, **repeated,
    }  # fmt: skip
