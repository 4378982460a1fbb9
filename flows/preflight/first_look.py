"""Read a few units of a source, and propose recipe, models and settings for it, by what it holds and this machine."""

from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import contents
from pairmill.catalog.queries.captioned import FirstTexts, first_texts
from pairmill.flows.machine.finding import Patient
from pairmill.flows.machine.recipe_models import recipe_models
from pairmill.flows.preflight.draw import draw
from pairmill.flows.preflight.preflight import FEW_PICTURES
from pairmill.flows.run.demo_models import PHOTO_PACKAGES
from pairmill.flows.run.run_start import check_run
from pairmill.flows.run.settings import Compute, load_recipe, load_runnable
from pairmill.ops.text.sentence_quality import language_of
from pairmill.tasks.collect.ingest import CAPTIONED
from pairmill.tasks.run.place.resources import this_machine

LARGE = 100_000  # units above which the recipe 30m is proposed, where there is a GPU
FEWEST_WORDS = 5  # of a sentence whose language is identified
# A captioner that a CPU can run, in place of the recipe's 2.2B parameters.
SMALL = {"models.captioner": "hf:HuggingFaceTB/SmolVLM-500M-Instruct", "captioners.main.precision": "fp32"}


@dataclass(frozen=True)
class FirstLook:
    """What a source holds: its units by format, and the texts of the units that were read."""

    units: dict[str, int]
    texts: FirstTexts

    @property
    def languages(self) -> list[tuple[str, float]]:
        """Languages of the sentences of FEWEST_WORDS words and more, as (ISO 639 code, share of 1 % and more)."""
        found = Counter(language_of(text) for text in self.texts.sentences if len(text.split()) >= FEWEST_WORDS)

        return [(name, n / found.total()) for name, n in found.most_common(3) if 100 * n >= found.total()]

    @property
    def has_pages(self) -> bool:
        """Whether at least one unit in 20 is no picture or caption table."""
        return 20 * sum(n for name, n in self.units.items() if name not in CAPTIONED) >= sum(self.units.values())

    @property
    def has_captions(self) -> bool:
        """Whether at least half of the pictures that were read came with a caption, and there are no pages."""
        return not self.has_pages and 0 < self.texts.pictures <= 2 * self.texts.captioned


@dataclass(frozen=True)
class Proposal:
    """A value for a question of `pairmill start`, and the reason; ``settings`` come with it."""

    value: str
    reason: str
    settings: dict[str, str] = field(default_factory=dict)


def look(source: str, folder: Path) -> FirstLook:
    """List a source and read its first units, in a worker process; the lakes below ``folder`` keep what was read.

    Raises SourceError for a source that is missing, empty or unreadable.
    """
    uris, checked = check_run(load_recipe("folder", {}, "demo"), [source], Compute())  # pyright: ignore[reportCallIssue]
    folder.mkdir(parents=True, exist_ok=True)
    with create_or_open(folder / "none") as none:
        draw(none, uris, checked, Compute(), folder, FEW_PICTURES)  # pyright: ignore[reportCallIssue]
        units = contents.count_listed(none)
    with create_or_open(folder / "pilot", read_only=True) as pilot:
        return FirstLook(units, first_texts(pilot))


def propose_recipe(seen: FirstLook) -> Proposal:
    """Propose a recipe, and the settings by which it fits the source's texts."""
    languages, settings = seen.languages, {}
    if languages and languages[0][0] not in ("en", "und", "zxx") and languages[0][1] >= 0.5:
        settings = {"ingest.language": languages[0][0]}
    if seen.has_captions:
        return Proposal("captions", "pictures keep their captions; one without is described", {"captions.own": "fill"})
    if not seen.has_pages:
        return Proposal("captions", "pictures without texts are described")
    if sum(seen.units.values()) > LARGE and this_machine().gpus:
        return Proposal("30m", "many pages, and a GPU", settings)
    return Proposal("folder", "pictures find their sentences, and get a caption", settings)


def propose_models(recipe: str, lake: str, folder: Path) -> Proposal:
    """Propose models that this machine can have and run: the recipe's, those of the extra [demo], or the shipped ones.

    ``folder`` is where the models of the extra [demo] are made.
    """
    small = SMALL if recipe == "captions" and not this_machine().gpus else {}
    findings = recipe_models(Patient(lake, load_runnable(recipe, small, "recipe")[0]))
    lacking = next((each.text for each in findings if each.state == "fail"), "")
    if not lacking:
        return Proposal("recipe", "no GPU: a smaller captioner" if small else "the recipe's own", small)
    if all(find_spec(name) for name in PHOTO_PACKAGES):
        settings = {"models.captioner": f"timm:{folder}/classifier", "captioners.main.prompt": "Name the class.",
                    "captioners.main.side": "224", "captioners.main.precision": "fp32"}  # fmt: skip
        clip = {"models.clip": f"open_clip:local-dir:{folder}/clip"} if recipe != "captions" else {}
        return Proposal("photographs", f"the extra [demo]'s, which know a little ({lacking})", settings | clip)
    return Proposal("demo", f"small ones that show the mechanics alone ({lacking})")
