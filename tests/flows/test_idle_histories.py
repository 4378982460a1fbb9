"""Over histories of changes, a run that is answered by an earlier one says what it would have said by running.

`make test` tries one history, `make test-full` 200. One takes 20 to 30 CPU s, since every step of it is a run.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings as profile

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write.lease import writing
from pairmill.catalog.write.sweep import checkpoint
from pairmill.catalog.write.version_names import drop_version, name_version
from pairmill.flows.command.cli import main
from pairmill.flows.command.display import Display
from pairmill.flows.run import run_recipe
from tests.examples import FULL
from tests.worlds.shared import new_lake

IS_FULL = profile().max_examples >= FULL
SEEDS = range(200) if IS_FULL else range(1)
STEPS = 6 if IS_FULL else 2
RECIPE = """
name: small
models: {{clip: "open_clip:local-dir:{model}"}}
images: [{{name: short_side, keep: "least(width, height) >= 64"}}]
sentences: [{{name: length, keep: "n_words between 3 and 81"}}]
duplicates: {{cosine: 0.99999}}
decoding: {{side: 64}}
balance: {{cap: 3}}
association: {{top_k: 2}}
"""


class History:
    """A lake, a source and a model, and what happens to them; ``random`` decides what."""

    def __init__(self, folder: Path, pages: Path, model: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
        self.random, self.capsys = random.Random(seed), capsys
        self.lake, self.pages = new_lake(folder / "lake"), folder / "pages"
        self.pages.mkdir()
        self.others = sorted(pages.rglob("*.html"))
        for each in self.others[:3]:
            self.take(each)
        self.model = shutil.copytree(model, folder / "clip")
        self.recipe = folder / "small.yaml"
        self.recipe.write_text(RECIPE.format(model=self.model))
        self.settings: dict[str, str] = {}
        self.damaged: tuple[Path, bytes] | None = None

    def take(self, page: Path) -> None:
        for file in page.parent.glob(f"{page.stem}*"):
            if file.is_file():
                shutil.copy(file, self.pages / file.name)

    def nothing(self) -> None:
        return None

    def add(self) -> None:
        self.take(self.random.choice(self.others[:6]))

    def remove(self) -> None:
        if len(found := sorted(self.pages.glob("*.html"))) > 1:
            self.random.choice(found).unlink()

    def change(self) -> None:
        page = self.random.choice(sorted(self.pages.glob("*.html")))
        page.write_text(page.read_text(encoding="utf-8") + f"<p>Something new, number {self.random.random()}.</p>")

    def set(self) -> None:
        caps = {"1", "2", "4"} - {self.settings.get("balance.cap", "")}
        self.settings = {"balance.cap": self.random.choice(sorted(caps))}

    def rule(self) -> None:
        self.settings = {"images.short_side.keep": f"least(width, height) >= {self.random.choice((64, 100, 5000))}"}

    def ban(self) -> None:
        with create_or_open(self.lake) as lake, writing(lake, "ban", "test"):
            lake.execute("INSERT INTO bans SELECT sha256, 'asked for', now() FROM images ORDER BY ALL LIMIT 1")

    def take_down(self) -> None:
        """Remove a document, which writes the files of its rows anew."""
        with create_or_open(self.lake, read_only=True) as lake:
            ((document,),) = lake.query("SELECT max(document_id) FROM documents")
        assert main(["takedown", "--document", str(document), "--lake", str(self.lake), "--yes"]) == 0

    def merge(self) -> None:
        with create_or_open(self.lake) as lake, writing(lake, "merge", "test") as writer:
            checkpoint(writer)

    def name(self) -> None:
        with create_or_open(self.lake) as lake, writing(lake, "name", "test"):
            newest = lake.query("SELECT max(version) FROM datasets")[0][0]
            name_version(lake, "small", newest, f"release-{newest}")

    def drop(self) -> None:
        with create_or_open(self.lake) as lake, writing(lake, "drop", "test"):
            if len(versions := lake.query("SELECT version FROM datasets ORDER BY version")) > 1:
                drop_version(lake, "small", self.random.choice(versions)[0])

    def retry(self) -> None:
        main(["run", str(self.recipe), "--retry", "missing", "--lake", str(self.lake), "--workers", "1"])

    def touch_model(self) -> None:
        os.utime(next(self.model.glob("*.safetensors")))

    def kill(self) -> None:
        """A run that ends in the middle leaves its row and what it committed."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pairmill.flows.curate.publish", _die)
            self.told(patch, runs=True)

    def damage(self) -> None:
        files = sorted((self.lake / "data" / "main").rglob("*.parquet"))
        file = self.random.choice([each for each in files if each.parts[-2] != "pairs"])
        self.damaged = (file, file.read_bytes())
        file.unlink()

    def mend(self) -> None:
        if self.damaged:
            self.damaged[0].write_bytes(self.damaged[1])
            self.damaged = None

    def told(self, patch: pytest.MonkeyPatch, runs: bool) -> tuple[int, list[str], bool]:
        """Run the command; return its exit status, its lines without those that show seconds, and if it was answered.

        With ``runs`` it goes through all steps, whatever earlier runs did.
        """
        answered: list[bool] = []
        answer = run_recipe.last_result

        def asked(*args):
            found = None if runs else answer(*args)
            answered.append(found is not None)
            return found

        patch.setattr(run_recipe, "last_result", asked)
        patch.setattr(Display, "EVERY_SECONDS", 1e9)  # on a busy machine a step that takes long says so meanwhile
        arguments = ["run", str(self.recipe), "--source", str(self.pages), "--lake", str(self.lake), "--workers", "1"]
        arguments += [each for key, value in self.settings.items() for each in ("--set", f"{key}={value}")]
        self.capsys.readouterr()
        status = main(arguments)
        said = self.capsys.readouterr()
        lines = [line for line in said.out.splitlines() + said.err.splitlines() if " items, " not in line]
        return status, lines, answered == [True]


def _die(session: object) -> None:
    raise KeyboardInterrupt


EVENTS: tuple[Callable[[History], None], ...] = (
    History.nothing, History.nothing, History.nothing, History.add, History.remove, History.change, History.set,
    History.rule, History.ban, History.take_down, History.retry, History.merge, History.name, History.drop,
    History.touch_model, History.kill, History.damage,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.hypothesis  # by this mark `make test-full` finds it
@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_says_what_a_run_would_say(
    seed: int, tmp_path: Path, pages: Path, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
):
    model = Path(settings["models.clip"].removeprefix("open_clip:local-dir:"))
    history = History(tmp_path, pages, model, seed, capsys)
    happened: list[str] = []
    ways: Counter[bool] = Counter()
    first = [History.nothing, History.nothing]
    for event in [*first, *history.random.choices(EVENTS, k=STEPS)]:
        event(history)
        happened.append(event.__name__)
        with pytest.MonkeyPatch.context() as patch:
            status, lines, is_answered = history.told(patch, runs=False)
        ways[is_answered] += 1
        if is_answered:
            with pytest.MonkeyPatch.context() as patch:
                ran, said, _ = history.told(patch, runs=True)
            assert (status, lines) == (ran, said), happened
        history.mend()
    assert ways[True], happened  # by the first two
    with capsys.disabled():
        if IS_FULL:
            print(f"\nseed {seed}: {ways[True]} answered of {len(happened)}: {' '.join(happened)}")
