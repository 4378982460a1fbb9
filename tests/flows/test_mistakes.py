"""Mistakes of a newcomer: each ends with an exit status and one line that says what is wrong and the remedy.

The commands run in this process, in a folder with ``pages``, ``photos``, an ``empty`` folder, a list with unknown
columns, recipes with faults, and ``lake``, which holds the dataset `small`. None of them makes the lake ``new``.
"""

import os
import shlex
from pathlib import Path

import pytest
from PIL import Image

from pairmill.flows.command.cli import main
from tests.worlds.published import published

RUN = "run 30m --source pages --models demo --lake new"
# The command, then what the line says.
MISTAKES = {
    # commands and options
    "rum 30m": "there is no 'rum'; did you mean 'run'?",
    "exprot small": "there is no 'exprot'; did you mean 'export'?",
    "run": "the following arguments are required: RECIPE. Example: pairmill run 30m --source pages --lake lake",
    "run 30m --sourc pages": "there is no option '--sourc'; did you mean '--source'?",
    "run 30m pages": "'pages' is one argument too many; did you mean --source pages?",
    "demo first": "'first' is one argument too many. Example: pairmill demo --to first-try",
    "datasets --format cvs": "there is no 'cvs'; did you mean 'csv'?",
    "run 30m --models small": "argument --models: there is no 'small'; there are recipe, demo.",
    "run 30m --workers many": "'many' is not a number of workers; give 0 (one per CPU) or more",
    "run 30m --model demo": "'demo' does not say a model's size; write it as clip:gpus=0.25",
    "run 30m --allow-address 10.0.0": "give a network such as 10.1.0.0/16",
    f"{RUN} --max-cost 5": "needs prices: name what a million tokens of a model cost, such as",
    "doctor --set balance.cap=3": "--set and --models change a recipe; name it before them: RECIPE --set",
    # recipes
    "run fodler --source pages": "there is no recipe 'fodler'; did you mean 'folder'?",
    "run pages": "this is a folder, which a run reads by --source; name a recipe before it,",
    "recaption ./photos": "this is a folder, which a run reads by --source; name a recipe before it",
    "run gone.yaml --source pages": "recipe 'gone.yaml': there is no such file; check the path.",
    "run open.yaml --source pages": "line 3, column 1: a bracket or a quote is not closed; close it, or",
    "run tab.yaml --source pages": "line 2, column 1: a tab stands where a value begins; indent with spaces",
    "run heir.yaml --source pages": "recipe 'own', 'extends': there is no recipe 'fodler'; did you mean 'folder'?",
    "run bare.yaml --source pages": "recipe 'own', 'models': it is missing; add it.",
    # settings
    f"{RUN} --set balance.cap": "--set balance.cap: write it as dotted.key=value, such as --set balance.cap=20.",
    f"{RUN} --set balance.cap=many": "'balance.cap': 'many' is not a whole number; write one, such as 20",
    f"{RUN} --set balance.cap=0": "'balance.cap': 0 is too small; write 1 or more",
    f"{RUN} --set balance.capp=3": "'balance.capp': there is no such setting; did you mean 'cap'?",
    f"{RUN} --set images.nothing.calibrate.drop=.1": "no 'nothing'; there are short_side, aspect_ratio, fits,",
    f"{RUN} --with web-claen": "there is no pack of rules 'web-claen'; did you mean 'web-clean'?",
    f"{RUN} --with pack.yaml": "pack 'pack.yaml', 'image': there is no such setting; did you mean 'images'?",
    f"{RUN} --set 'images.short_side.keep=widht > 3'": "no scorer computes 'widht'; did you mean 'width'?",
    f"{RUN} --set 'images.short_side.keep=leas(width) > 3'": "rule 'short_side': it calls leas()",
    f"{RUN} --set 'sentences.length.keep=n_words between 81 and 3'": "no value of n_words passes, which is to be above",
    f"{RUN} --set 'images.short_side.keep=width > 300 and width < 100'": "no value of width passes, which is",
    f"{RUN} --set tags.vocabulary=words.txt": "words.txt' holds cat more than once; keep one of each",
    f"{RUN} --set 'name=My set'": "'name': 'My set' is no name; write small letters, digits, '-' and '_'",
    f"{RUN} --set 'images.short_side.keep=width >'": "it cannot be parsed at ^: width > ^. A predicate",
    f"{RUN} --set 'images.short_side.keep=width > 3 and and height'": "at ^: width > 3 and ^ and height. A",
    # numbers and places of options
    f"{RUN} --wait -1": "argument --wait: '-1' is no number of minutes; give 0 or more",
    f"{RUN} --stall-minutes soon": "'soon' is no number of minutes; give 0 or more",
    f"{RUN} --max-hours -3": "argument --max-hours: '-3' is no number above 0; give one such as 8 or 0.5",
    f"{RUN} --model clip:gpu=1": "'gpu=1' is no setting of a model; did you mean 'gpus'?",
    # one for each other command
    "preflight fodler --source pages": "there is no recipe 'fodler'; did you mean 'folder'?",
    "preflight demo --source pgaes": "there is no such file or folder; did you mean 'pages'?",
    "start": "the following arguments are required: FOLDER. Example: pairmill start photos",
    "start empty": "is empty; give a folder, a file or a prefix that holds pages",
    "start pgaes": "there is no such file or folder; did you mean 'pages'?",
    "start photos --to pages": "--to 'pages' holds other files; name a new folder.",
    "recut small --lake lake --set balance.kap=3": "'balance.kap' is no setting of the cut (images,",
    "diff small@1 small@9 --lake lake": "dataset 'small' has no version 9; its newest is small@1.",
    "calibrate small --lake lake": "the following arguments are required: RULE. Example: pairmill calibrate",
    "edit --lake lake": "the following arguments are required: NAME[@V]. Example: pairmill edit 30m",
    "forget --lake lake": "the following arguments are required: --scorer. Example: pairmill forget --scorer",
    "takedown nothing.jpg --lake lake": "knows no 'nothing.jpg'. Give an id, a sha256, the address of a picture",
    "browse --lake nowhere": "there is no lake at 'nowhere'. Check --lake",
    "check --lake nowhere": "there is no lake at 'nowhere'. Check --lake",
    "maintain --lake nowhere": "there is no lake at 'nowhere'. Check --lake",
    "recipe fodler": "argument what: there is no 'fodler'; there are show, schema.",
    "completion tcsh": "argument shell: there is no 'tcsh'; there are bash, zsh, fish.",
    # models
    f"{RUN} --set fuse.model=fusr": "`fuse` needs the model 'fusr'; did you mean 'fuser'? Else add it to `models`",
    "run 30m --source pages --lake new --set models.clip=ViT-B-32": "names no model; write open_clip:MODEL/PRETRAINED",
    f"{RUN} --set models.captioner=hf:./captioner": "captioner; correct the path, or use --models demo",
    f"{RUN} --model clp:gpus=1": "recipe '30m' has no model 'clp'; did you mean 'clip'?",
    # sources
    "run 30m --models demo --lake new": "recipe '30m' names no source; give one: --source FOLDER, FILE",
    "run 30m --models demo --lake new --source pgaes": "there is no such file or folder; did you mean 'pages'?",
    "run 30m --models demo --lake new --source empty": "is empty; give a folder, a file or a prefix that holds pages",
    "run 30m --models demo --lake new --source notes.docx": "'notes.docx' is nothing that is read; give pages (.html)",
    "run 30m --models demo --lake new --source list.csv": "its columns are link, text; expected .parquet",
    "run 30m --models demo --lake new --source marks.csv": "(separated by ';': write commas, or tabs in a .tsv)",
    "run 30m --models demo --lake new --source headless.csv": "(its first line is data: add a line with the columns'",
    "run 30m --models demo --lake new --source s3:/bucket/x": "no such place; did you mean s3://bucket/x?",
    "run 30m --models demo --lake new --source lake": "is a lake or an export of Pairmill, which no source reads",
    "recaption demo --lake new --set captioners=[]": "`fuse` needs a captioner; add one to `captioners` or take `fuse`",
    "recaption demo --lake new --set fuse=null": "--set fuse: the recipe `captions` takes only the first captioner of",
    # lakes
    "status --lake nowhere": "there is no lake at 'nowhere'. Check --lake, or make one with `pairmill run`.",
    "run 30m --models demo --retry timeout --lake new": "there is no lake at 'new'",
    "run 30m --models demo --source pages --lake photos": "holds other things (a.jpg). Name a new or an empty folder",
    "recaption --models demo --lake photos": "there is no lake at 'photos'",
    "sql 'SELECT 1' --lake list.csv": "lake 'list.csv' is a file. Name a folder, or a lake.yaml.",
    # questions to a lake
    "sql 'SELECT captoin FROM pairs' --lake lake": 'Candidate bindings: "caption"',
    "sql 'DELETE FROM pairs' --lake lake": "the lake is opened for reading, and no option lets SQL change it.",
    "why nothing.jpg --lake lake": "knows no 'nothing.jpg'. Give an id, a sha256, the address of a picture or page",
    "why 33.jpg --lake lake": "knows no '33.jpg'. Did you mean '3.jpg'? Give an id",
    "why 3.jpg --dataset smal --lake lake": "did you mean 'small'?",
    "run 30m --models demo --retry blocked_adress --lake lake": "did you mean 'blocked_address'?",
    "recaption --models demo --source photos --lake new --retry posion": "did you mean 'poison'?",
    # what is written
    "export small --lake lake": "the following arguments are required: --to. Example: pairmill export 30m",
    "export smal --to out --lake lake": "lake 'lake' has no dataset 'smal'; did you mean 'small'?",
    "export small@9 --to out --lake lake": "dataset 'small' has no version 9; its newest is small@1.",
    "export small --to pages --lake lake": "is not empty (there is 'a.html'), and an export is written into a folder",
    "export small --to s3:/bucket/x --lake lake": "write s3://BUCKET/PREFIX with two slashes",
    "demo --to pages": "--to 'pages' holds other files (a.html, a.jpg); name a new folder.",
    "demo --to list.csv": "--to 'list.csv' is a file; name a new folder.",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of everything, for all commands; none of them changes it."""
    place = tmp_path_factory.mktemp("mistakes")
    published(place / "lake", pictures=4)
    for name in ("pages", "photos", "empty"):
        (place / name).mkdir()
    for name in ("pages", "photos"):
        Image.new("RGB", (200, 150), "red").save(place / name / "a.jpg")
    texts = {
        "pages/a.html": "<p>A red fox sleeps in the sun.</p><img src=a.jpg>",
        "list.csv": "link,text\nhttps://example.org/a.jpg,A fox\n",
        "marks.csv": "url;text\nhttps://example.org/a.jpg;A fox\n",
        "headless.csv": "https://example.org/a.jpg,A fox\nhttps://example.org/b.jpg,A dog\n",
        "notes.docx": "PK",
        "words.txt": "cat\ndog\ncat\n",
        "open.yaml": "name: own\nimages: [{name: big, keep: width > 3}\n",
        "tab.yaml": "name: own\n\tmodels: {}\n",
        "bare.yaml": "name: own\n",
        "heir.yaml": "name: own\nextends: fodler\n",
        "pack.yaml": "image: []\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    return place


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_told_in_one_line_with_the_remedy(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PAIRMILL_LAKE", raising=False)
    before = sorted(os.listdir(folder))
    try:
        status, usage = main(shlex.split(command)), False
    except SystemExit as ended:
        status, usage = ended.code, True
    out, err = capsys.readouterr()
    assert (status, out) == (2 if usage else 1, "")
    assert err.startswith("pairmill") and err.count("\n") == 1 and len(err) <= 500
    assert MISTAKES[command] in err
    assert sorted(os.listdir(folder)) == before
