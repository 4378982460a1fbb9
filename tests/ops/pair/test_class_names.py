"""A vocabulary that every installation has."""

import subprocess
import sys

from open_clip import IMAGENET_CLASSNAMES

from pairmill.flows.run.settings import load_recipe
from pairmill.ops.pair.class_names import class_names


def test_they_are_the_names_that_open_clip_ships_each_once():
    names = class_names("imagenet")
    assert set(names) == set(IMAGENET_CLASSNAMES) and len(names) == len(set(names)) == 998
    assert names[:2] == ["tench", "goldfish"]


def test_another_name_has_none():
    assert class_names("infra/demo/vocabulary.txt") == []


def test_a_recipe_names_them_without_torch():
    """What reads a recipe, such as `pairmill status`, would wait 3 seconds for it."""
    script = (
        "import sys; from pairmill.flows.run.settings import load_recipe; "
        "print(len(load_recipe('demo', {'tags.vocabulary': 'imagenet'}).tags.vocabulary), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["998", "False"]


def test_the_words_stand_in_the_recipe_as_those_of_a_file_do():
    recipe = load_recipe("demo", {"tags.vocabulary": "imagenet"})
    assert recipe.tags is not None and recipe.tags.vocabulary == class_names("imagenet")
