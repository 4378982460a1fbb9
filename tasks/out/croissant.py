"""Describe an export as Croissant JSON-LD (MLCommons, version 1.0): files, columns, recipe, funnel and sources."""

from collections.abc import Sequence
from typing import Any

from pairmill.catalog.ask.datasets import Dataset, funnel
from pairmill.catalog.ask.origins import licences, web_hosts
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import columns
from pairmill.tasks.out.parquet_tables import IMAGE

CROISSANT = ".croissant.json"
_MEDIA = {"tar": "application/x-tar", "parquet": "application/x-parquet", "json": "application/json"}
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


def croissant(lake: Lake, dataset: Dataset, files: str, names: Sequence[str], about: str) -> dict[str, Any]:
    """Return the JSON-LD of a version's export.

    `rai:dataPreprocessingProtocol` has the recipe and each rule with its counts, `isBasedOn` the web hosts of the
    pictures, `license` the licences that came along with the documents. The publisher adds a licence of the whole.

    Args:
        lake: The lake.
        dataset: The version.
        files: The glob of the data files, which form one FileSet.
        names: The columns, in a RecordSet; none for tars, whose members Croissant cannot join to rows.
        about: A sentence that says what the export is.
    """
    found_licences = licences(lake, dataset)
    found = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": dataset.name,
        "version": f"{dataset.version}.0.0",
        "description": about,
        "datePublished": f"{dataset.created_at:%Y-%m-%d}",
        "isBasedOn": web_hosts(lake, dataset),
        **({"license": found_licences} if found_licences else {}),
        "rai:dataPreprocessingProtocol": [f"Recipe of Pairmill: {dataset.recipe}", *_steps(lake, dataset)],
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


def _steps(lake: Lake, dataset: Dataset) -> list[str]:
    """Return a line for each rule of the funnel."""
    return [f"{step.kind} {step.rule}: {step.n_in} in, {step.n_dropped} dropped" for step in funnel(lake, dataset)]


def _field(name: str) -> dict[str, Any]:
    """Return the description of one column."""
    kind = columns("pairs").get(name, "VARCHAR")
    extract: dict[str, Any] = {"fileSet": {"@id": "files"}, "extract": {"column": name}}
    if name == IMAGE:
        extract["transform"] = {"jsonPath": "bytes"}
    repeated = {"repeated": True} if kind.endswith("[]") or name in ("captions", "conversations") else {}
    data_type = "sc:ImageObject" if name == IMAGE else _TYPES.get(kind.removesuffix("[]"), "sc:Text")
    return {
        "@type": "cr:Field", "@id": f"rows/{name}", "name": name, "dataType": data_type, "source": extract, **repeated,
    }  # fmt: skip
