"""Describe an export by a dataset card, which tells `datasets` and the Hub its data files, and as Croissant.

Croissant (MLCommons, version 1.0) is JSON-LD of the files, the columns, the recipe, the funnel and the sources.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import columns
from pairmill.catalog.queries.datasets import funnel
from pairmill.catalog.queries.edit_preview import describe_edits
from pairmill.catalog.queries.export.exports import licences, web_hosts
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.queries.gallery.gallery_query import Concept
from pairmill.tasks.release.export.export_forms import PICTURE
from pairmill.tasks.release.export.parquet_tables import IMAGE
from pairmill.tasks.release.export.pictures import EXPORTED

CROISSANT = ".croissant.json"
HERE = Path(__file__).parent
_MEDIA = {"tar": "application/x-tar", "parquet": "application/x-parquet", "json": "application/json",
          "jsonl": "application/jsonl"}  # fmt: skip
_KINDS = {**columns("pairs"), "n_tokens": "INTEGER", "occurrences": "BIGINT"}
_LISTS = ("captions", "conversations", "images", "texts", "image_bytes")
_ONE_TEXT = ("dataCollection", "dataCollectionMissingData", "dataReleaseMaintenancePlan")  # fields of RAI without lists
_TYPES = {"INTEGER": "sc:Integer", "BIGINT": "sc:Integer", "DOUBLE": "sc:Float"}


def croissant(
    lake: Lake,
    selected: Selection,
    about: str,
    files: str,
    names: Sequence[str],
    gaps: Sequence[Concept],
    splits: Sequence[str] = (),
    rai: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the Croissant JSON-LD of an export, without a licence of the whole, which its publisher adds.

    The first of the versions names the export, ``about`` is a sentence that describes it. ``files``: the glob of the
    data files, which form one FileSet; '' for a card alone. ``names``: the columns, for a RecordSet; empty for tars,
    whose members Croissant cannot join to rows. ``splits``: names, for a RecordSet to which the column `split` refers.
    ``rai``: lines by further fields of Croissant RAI. ``gaps``: counted concepts, listed in `rai:dataBiases` by the
    share of pictures that they lose.
    """
    came_along, dataset, steps = licences(lake, selected), selected.versions[0], list[str]()
    for version in selected.versions:
        recipe = re.sub(r'(?<=[":])(?:/[^"/]+)+(?=/[^"/])', "…", version.recipe)  # no folders of this machine
        rules = funnel(lake, version)
        steps.append(f"Recipe of Pairmill: {recipe}")
        steps += [f"{each.kind} {each.rule}: {each.n_in} in, {each.n_dropped} dropped" for each in rules]
        steps += describe_edits(lake, version)
    biases = []
    for each in sorted(gaps, key=lambda each: (-each.dropped / max(1, each.pictures + each.dropped), each.name)):
        line = f"{each.name}: {each.pictures} pictures kept, {each.dropped} dropped, {each.texts} texts"
        biases.append(f"{line}; {each.rule} drops most ({each.dropped_by_rule})" if each.rule else line)
    found = {
        "@context": json.loads((HERE / "croissant_context.json").read_bytes()),  # as the specification prescribes
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": str(selected) if selected.is_mixture else dataset.name,
        "version": f"{dataset.version}.0.0",
        "description": about,
        "datePublished": f"{max(each.created_at for each in selected.versions):%Y-%m-%d}",
        "isBasedOn": web_hosts(lake, selected),
        **({"license": came_along} if came_along else {}),
        "rai:dataPreprocessingProtocol": steps,
        **({"rai:dataBiases": biases} if biases else {}),
        **{f"rai:{name}": "; ".join(lines) if name in _ONE_TEXT else [*lines] for name, lines in rai.items()},
        "distribution": [
            {"@type": "cr:FileSet", "@id": "files", "name": "files", "encodingFormat": _MEDIA[files.rpartition(".")[2]],
             "includes": files},
        ] if files else [],
    }  # fmt: skip
    sets = []
    if splits:
        key = {"@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text"}
        sets.append({"@type": "cr:RecordSet", "@id": "splits", "name": "splits", "dataType": "cr:Split",
                     "key": {"@id": "splits/name"}, "field": [key],
                     "data": [{"splits/name": name} for name in splits]})  # fmt: skip
    if names:
        fields = [_field(name) for name in names]
        for each in fields:
            each |= {"references": {"field": {"@id": "splits/name"}}} if each["name"] == "split" else {}
        sets.append({"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": fields})
    return found | ({"recordSet": sets} if sets else {})


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


def dataset_card(title: str, about: str, format: str, files: Mapping[str, str], names: Sequence[str], text: str) -> str:
    """Return the Markdown of a dataset card with its YAML header, without counts: the card stays valid as exports grow.

    A card alone (``format`` 'card') says nothing of files.

    ``files`` has the glob of the data files of each split, ``names`` are their columns, ``text`` is the option for a
    tar's `.txt`.
    """
    data_files = [{"split": name, "path": path} for name, path in files.items()]
    configs = {"configs": [{"config_name": "default", "data_files": data_files}]}
    # `datasets` finds the pictures of a folder by its `metadata.jsonl`.
    header = yaml.safe_dump({**({} if format == "folder" else configs), "tags": ["image-text"]}, sort_keys=False)
    if format == "card":
        return f"---\n{yaml.safe_dump({'tags': ['image-text']})}---\n\n# {title}\n\n{about}\n"
    texts = yaml.safe_load((HERE / "dataset_card.yaml").read_text("utf-8"))
    form = texts[format].format(picture=PICTURE, text=text, image=IMAGE)
    form += f"\n\n{texts['stripped']}" if set(EXPORTED) <= {*names} or format == "obelics" else ""
    return f"""---
{header}---

# {title}

{about}

{form}

```python
from datasets import load_dataset

rows = load_dataset("path/of/this/folder", split="{"train" if "train" in files else next(iter(files))}", streaming=True)
```

Columns: {", ".join(f"`{name}`" for name in names)}.
"""
