"""Every sentence rule of `30m` but perplexity keeps sentences of the shapes that RealSyn prints (figures 10 to 12).

Those texts passed the paper's filters. These are our own sentences, one or two of each shape: a wish, existence, a
copula, a relative clause, a question, a fragment with a participle, "known as", two sentences in one, lower case.
"""

import pytest

from pairmill.ops.text.corpus_entropy import CorpusEntropy
from pairmill.ops.text.sentence_quality import SentenceQuality
from pairmill.ops.text.sentence_structure import SentenceStructure
from tests.ops.text.test_sentence_structure import MODEL

SHAPES = [
    "Thanks, and enjoy the lake!",  # a wish
    "Cheers and enjoy your trip to the mountains !",
    "There are drawings, such as the 1871 plan of the old harbour wall.",  # existence
    "Now there are certainly some shops where you can buy the yarn.",
    "Tomorrow, march 3, is the day of saint brannoc, better known in the north as the baker.",  # "known as"
    "That was a fine evening! the river choir was a wonderful group to hear at our wedding.",  # two in one, a copula
    "It is rarely the case that a storm is merely a cloud above a town, but it is something of the sea.",
    "I hope the snow is soft on your side. greetings from the hut at the pass.",
    "Opening the gate to a garden of herbs. it's a place that has much to tell.",  # a gerund
    "Painters who are still looking for a style often fall into repetition.",  # a relative clause
    "Deck chairs are lined up on the hotel's sandy terrace opposite.",  # a passive
    "Lovely shots and even in autumn a walk on the dunes sounds perfect.",  # no subject of its own
    "Did you just rinse the pan with hot water to loosen it?",  # a question
    "While the climb was steep, the sight of the valley took the breath from us …",
    "Pictures of foxes with their tails held high, can be a sign of joy.",
    "Some quiet but wide views over the rim to long fields of ice, reaching to the shore.",  # no finite verb
    "To regain strength he became a man of the woods .",
    "plate 4 . works on the coast railway ( 1884 ). plate 4 shows a broad view of the bridge .",  # in lower case
    "To the east, the old glacier looked smaller after the year's long summer, with no fresh snow.",
    "Just put the lamp beside the window.",  # a command
]
# Shares of the most frequent words among 201,557 of two manuals.
SHARES = {
    "the": 0.0565, ".": 0.0492, ",": 0.031, "to": 0.02, "of": 0.0184, "a": 0.0179, "and": 0.0153, "is": 0.0152,
    "in": 0.0132, "you": 0.0105, ")": 0.0086, "(": 0.0086, "for": 0.0082, "can": 0.008, ":": 0.0078, "The": 0.0072,
    "with": 0.0066, "are": 0.0063, "be": 0.0061, "on": 0.006, "or": 0.0059, "this": 0.0056, "that": 0.0052,
}  # fmt: skip


@pytest.mark.parametrize("text", SHAPES)
def test_what_the_paper_keeps_is_kept(text: str):
    batch = SentenceQuality()({"text": [text]})
    batch = CorpusEntropy(SHARES)(SentenceStructure(MODEL)(batch))
    assert 3 <= batch["n_words"][0] <= 81 and not batch["has_url"][0] and not batch["has_emoji"][0]
    assert batch["complexity"][0] >= 1 and batch["has_action"][0]
    assert batch["corpus_entropy"][0] >= (0.3 if "," in text else 0.2), batch["corpus_entropy"]


@pytest.mark.parametrize("text", ["The old harbour of Leith at dawn.", "A red boat.", "No bridge in sight, no ferry."])
def test_what_has_no_verb_has_no_action(text: str):
    assert SentenceStructure(MODEL)({"text": [text]})["has_action"] == [False]


def test_marks_count_as_words_of_the_entropy():
    """The full stop and the comma alone have 0.37 bits, so few sentences of both fall below the paper's 0.3."""
    assert CorpusEntropy(SHARES)({"text": ["one, two."]})["corpus_entropy"] == [0.3691]
