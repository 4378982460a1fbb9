"""Patterns of personal data: precision and recall on 317 sentences of eleven countries, and a rule that reads them."""

from pathlib import Path

import pytest

from pairmill.catalog.pending.eligible import sentence_rows
from pairmill.catalog.recipe.rule_packs import pack_overrides
from pairmill.catalog.terms.score import Stage
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import RECIPES, Compute, load_recipe
from pairmill.ops.text.personal_data import PersonalData, kinds_in
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.measure.score_contents import score_sentences
from tests.worlds.generated import small_settings
from tests.worlds.golden import check_golden
from tests.worlds.shared import new_lake

CASES = [
    tuple(line.rstrip("\n").split("\t"))
    for line in (Path(__file__).parents[2] / "worlds" / "personal_data.tsv").open(encoding="utf-8")
    if not line.startswith("#")
]
KINDS = ("email", "phone", "card", "iban", "address")


def test_precision_and_recall_by_kind_on_the_forms_of_eleven_countries():
    assert len(CASES) >= 300 and len({country for _, country, _ in CASES}) > 10
    for kind in KINDS:
        found = [(kind in kinds_in(text), wanted == kind) for wanted, _, text in CASES]
        right = found.count((True, True))
        precision, recall = right / (right + found.count((True, False))), right / (right + found.count((False, True)))
        print(f"{kind}: precision {precision:.3f}, recall {recall:.3f}, of {right + found.count((False, True))}")
        assert precision >= 0.93 and recall >= 0.93, kind


def test_check_digits_decide_on_cards_and_ibans():
    assert kinds_in("Card 4111 1111 1111 1111") == {"card"} and not kinds_in("Card 4111 1111 1111 1112")
    assert kinds_in("DE89370400440532013000") == {"iban"} and "iban" not in kinds_in("DE88370400440532013000")


def test_the_version_gives_what_it_gave():
    texts = [text for _, _, text in CASES[::40]] + ["", "Nothing.", "1" * 9000, "@" * 9000, "a.b@" * 2000]
    found = PersonalData()({"text": texts})
    check_golden("personal_data", PersonalData.version, {f"has_{kind}": found[f"has_{kind}"] for kind in KINDS})


@pytest.mark.slow
def test_a_rule_of_the_pack_drops_sentences_with_personal_data(tmp_path: Path):
    texts = [
        "Call Ada Smith on +44 20 7946 0018 today.",
        "The fox sleeps in the warm sun.",
        "Mail ada@example.org for it.",
    ]
    (tmp_path / "pages").mkdir()
    page = "".join(f"<p>{text}</p>" for text in texts)
    (tmp_path / "pages" / "a.html").write_text(f"<html><body><article>{page}</article></body></html>")
    others = {f"sentences.{name}.keep": "true" for name in ("no_url", "entropy", "complexity", "action")}
    pack = pack_overrides(["publishable"], RECIPES / "packs")
    recipe = load_recipe("demo", small_settings() | others | pack)
    with session(recipe, [str(tmp_path / "pages")], str(new_lake(tmp_path / "lake")), Compute(workers=1)) as held:  # pyright: ignore[reportCallIssue]
        ingest(held)
        score_sentences(held)
        rows = held.lake.query(f"SELECT text, dropped_by FROM ({sentence_rows(held.plan, Stage.PARSE)})")
        assert dict(rows) == {texts[0]: "no_private", texts[1]: "", texts[2]: "no_private"}
        assert held.recipe.opt_outs == 7 and held.plan.computes("rights")
