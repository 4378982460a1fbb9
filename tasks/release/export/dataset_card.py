"""Write the dataset card of an export: the README.md from which `datasets` and the Hub learn which files are data."""

from collections.abc import Sequence

import yaml

from pairmill.tasks.release.export.parquet_tables import IMAGE
from pairmill.tasks.release.export.webdataset_tars import PICTURE, Sample

_FORM = {
    "webdataset": (
        "WebDataset tars. A sample has three files: `{key}.{picture}` (the picture's original bytes, named "
        "`.{picture}` whatever their format is), `{key}.txt` (the column `{text}`) and `{key}.json` (all columns)."
    ),
    "parquet": "Parquet tables. The column `{image}` has the picture's original bytes.",
    "texts": "Parquet tables of texts, without pictures.",
    "realsyn": "Parquet tables in the columns of RealSyn's release: the picture's address on the web, and its texts.",
    "obelics": (
        "Parquet tables of documents, as OBELICS is released: `images` and `texts` are parallel lists in reading "
        "order, one of them null at each place. `image_bytes` has the pictures' original bytes, `metadata` (JSON text) "
        "what is known of each picture, `general_metadata` (JSON text) of the document."
    ),
    "llava": (
        "JSON lists of conversations, as LLaVA trains on them. `image` is the picture's name in the tars of the "
        "webdataset export of the same version."
    ),
}


def dataset_card(title: str, about: str, format: str, files: str, columns: Sequence[str], sample: Sample) -> str:
    """Return the Markdown of a card with its YAML header; ``files`` is the glob of the data files.

    The card has no counts: it stays valid when an export grows.
    """
    configs = [{"config_name": "default", "data_files": [{"split": "train", "path": files}]}]
    header = yaml.safe_dump({"configs": configs, "tags": ["image-text"]}, sort_keys=False)
    form = _FORM[format].format(key=sample.name.upper(), picture=PICTURE, text=sample.text, image=IMAGE)
    return f"""---
{header}---

# {title}

{about}

{form}

```python
from datasets import load_dataset

rows = load_dataset("path/of/this/folder", split="train", streaming=True)
```

Columns: {", ".join(f"`{name}`" for name in columns)}.
"""
