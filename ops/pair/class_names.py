"""Read ImageNet's class names from open_clip: a vocabulary that every installation has."""

from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

IMAGENET = "imagenet"


@cache
def class_names(name: str) -> list[str]:
    """Return the 998 distinct names of ImageNet's 1,000 classes if ``name`` is 'imagenet'; [] for any other name.

    Two names are shared by two classes each. A tagger's identity contains the words, not open_clip's version.
    """
    package = find_spec("open_clip") if name == IMAGENET else None
    if package is None or package.origin is None:
        return []
    # Load the file alone: importing the package imports torch, 3 CPU seconds for every command that reads a recipe.
    spec = spec_from_file_location("zero_shot_metadata", Path(package.origin).with_name("zero_shot_metadata.py"))
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(dict.fromkeys(module.IMAGENET_CLASSNAMES))
