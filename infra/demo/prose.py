"""Write English sentences of the demo world: some describe a picture, others describe nothing pictured."""

import numpy as np

WHO = """my aunt|the librarian|our neighbour Clara|a retired teacher|the youngest cousin|Mr Okafor|the night porter|a visiting student
the shopkeeper|an old friend from Leeds|the editor|Teresa|her grandfather|the new apprentice|a careful collector|the town clerk
our guide Henrik|the binder's assistant|a weary traveller|the committee|someone from the council|the twins|Doctor Amari|a local painter"""
WHEN = """last winter|in the spring of 1987|one rainy Tuesday|before breakfast|on the way home|during the long strike|after the harvest
many years ago|late in the evening|at the turn of the century|twice a month|when the market closed|on the second morning|every August
shortly before noon|in those days|towards the end of the lesson|while the others slept"""
WHERE = """in the old reading room|at the back of the workshop|near the canal|behind the counter|in a village outside Turin
on the upper floor|at the county archive|along the northern road
in the waiting hall|under the stairs|by the western entrance|in the margin of the register
beside the lake|at the autumn exhibition|in a drawer of the study|across the courtyard|on page forty|in the second gallery"""
DESCRIBES = """{who} drew {np} {where}
{when}, {who} noticed {np} {where}
you can clearly make out {np} if you look closely
this one shows {np}, which {who} had admired {when}
nobody expected to find {np} {where}
here {who} has placed {np} right in the middle
above the text stands {np}, slightly turned
it took {who} a whole afternoon to finish {np}
what we see is {np}
among all the sketches, {np} remains the favourite of {who}
{who} asked why {np} had been chosen, and no one could say
the illustration of {np} was added {when}
have you ever seen {np} drawn so plainly
to the left of the caption {who} placed {np}
{when} the printers used {np} to mark a new chapter
{who} said that {np} would bring luck
there was {np} {where}, and everyone remembered it
please look at {np} before reading on
with a steady hand {who} coloured {np} {when}
the picture with {np} belongs to {who}
{np} caught the attention of {who} at once
only {np} could be saved from the flood {where}
{who} still keeps {np} {where}
a reader has sent us {np}, found {where}
some say {np} stands for patience, though {who} disagrees
{when}, {np} appeared on every poster {where}
for the cover {who} wanted {np} and nothing else
I remember {np} from my first visit, {when}
the second plate depicts {np} and was made {when}
not far from there {who} had painted {np}
compare {np} with the earlier version kept {where}
{who} wrote three lines about {np} and then fell silent
children tend to recognise {np} immediately
if the light is good, {np} looks almost real
{np} was printed slightly larger than usual
once again we meet {np}, this time {where}
in this frame {np} fills most of the space
{who} has never explained what {np} is doing {where}
the last of the series is {np}, finished {when}"""
PHRASES = """the {name}|a {name}|the {size} {name}|the {name}|a {name}|the famous {name}|that {name}|a {size} {name}
the {name} on a {pattern} {colour} background|a {name} against a {colour} ground|the {name} before a {pattern} backdrop
a drawing of the {name}|the symbol of the {name}|a {name} over a {colour} surface|one more {name}|a {pattern} panel with the {name}"""
DISTRACTORS = """{who} promised to return the papers {when}
{when}, the ferry was late by almost an hour
the minutes of the meeting were read aloud {where}
nothing much happened {when}, and that suited {who} well
{who} had studied law before moving to the coast
prices went up again {when}, although wages did not
the weather stayed mild until the middle of {month}
it is not known who paid for the repairs {where}
{who} disliked long speeches and said so {when}
the rules were changed in {year}, mostly for practical reasons
by {year} more than {count} families had registered {where}
a second edition followed in {year} and sold {count} copies
{when} we walked for {count} minutes without speaking
{who} believed that patience matters more than talent
the argument lasted until {month}, when both sides gave up
several readers wrote to complain about the spelling
{count} steps lead from the gate up to the terrace
opening hours differ between {month} and the rest of the year
{who} took careful notes {where}
most of the archive was moved {when}
the lecture {where} drew a crowd of about {count}
we never learned the true reason for the delay
{who} and {who2} agreed to share the costs
in {year} the society met {where} for the first time
everything else in this chapter was written {when}
nobody blamed {who} for the mistake
the report from {month} mentions a shortage of paper
{count} volunteers helped to clear the ground {where}
{who} prefers to work alone, especially {when}
after {year} the route was served by a smaller company
the old contract ended in {month} without any notice
what {who} remembered best was the silence {where}
a short summary is kept {where} for anyone who asks
the youngest members had to wait outside {when}
{who2} disagreed with {who} about almost everything
taxes were collected {where} as late as {year}
you may quote freely from this text as long as you name the author
for {count} years nobody repaired the roof
the next meeting has been postponed until {month}
{who} learned to speak three languages {when}"""
NO_ACTION = """{np}, as seen {where}
{count} steps between the gate and the terrace
a short note on {np}, with {count} pages
to the left of the caption, {np}
the quiet life of {who} {where}
figure {count}: {np} from the collection of {who}
no parking {where}, not even on Sundays
{np} and other drawings from the years after {year}
{count} letters, {year} to {month}, in good condition
{who}, author of several books about patience and paper
the best time for a walk along the northern road
a large house with {count} windows {where}
no bridge {where}, and no ferry either
half a page about {np} in small print"""
NO_RELATION = """he waited, and then he slept
they laughed and went away
she never said why and nobody asked
we ate, drank, sang and danced
it happened again, so they stopped
I know what you think and so does she
you read, I wrote, they listened and nobody spoke
everybody ran when it began
he came, he saw, he left
whoever waits will see it happen
it rained, then it snowed, then nothing happened
she thinks that they will never agree
they asked us to stay, so we stayed
nobody answered when I called
we walked and talked until it stopped
it stopped before we noticed"""
OPENINGS = (
    "|yesterday |once more |suddenly |perhaps |in {year} |later |by {year} |around {year} |before {year} |after {year} "
)
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
# Templates and their paraphrases.
PARAPHRASES = """{who} drew {np} {where} = {np} was drawn {where} by {who}
{when}, {who} noticed {np} {where} = {np} was noticed {where} by {who} {when}
the illustration of {np} was added {when} = {when}, somebody added the illustration of {np}
with a steady hand {who} coloured {np} {when} = {when}, {who} coloured {np} with a steady hand
the picture with {np} belongs to {who} = {who} owns the picture with {np}
{np} caught the attention of {who} at once = at once {np} caught the attention of {who}
{who} still keeps {np} {where} = {where}, {who} still keeps {np}
for the cover {who} wanted {np} and nothing else = {who} wanted nothing but {np} for the cover
not far from there {who} had painted {np} = {who} had painted {np} not far from there
the lecture {where} drew a crowd of about {count} = about {count} people came to the lecture {where}
in {year} the society met {where} for the first time = the society first met {where} in {year}
{count} volunteers helped to clear the ground {where} = {where}, {count} volunteers helped to clear the ground
{who} took careful notes {where} = {where}, {who} took careful notes
{who} and {who2} agreed to share the costs = the costs were shared by {who} and {who2}
most of the archive was moved {when} = {when}, they moved most of the archive"""
SLOGANS = """Stories worth keeping, told by those who were there.
Our readers have travelled with us since the first issue.
Every page of this journal is written by volunteers."""
BOILERPLATE = """We use cookies to improve your experience on this site.
Share this page with your friends and followers.
Sign up for our weekly newsletter to never miss a story.
All rights reserved by the publisher and the respective authors.
By continuing to browse you accept our terms and privacy policy.
Leave a comment below and let us know what you think."""
STOCK_PHRASES = """Sign up for the weekly newsletter of {who}.
Share this page about {month} {year} with your friends and followers.
All rights reserved by {who}, {year}.
By continuing to browse you accept the privacy policy of {month} {year}.
Leave a comment below and let {who} know what you think.
We use cookies to count the {count} readers of this site."""
URLS = """Read the full story at https://www.example.org/articles/{count} before {month}.
More details can be found on http://archive.example.com/{year}/{count}.html for those who care.
The original page, www.example.net/notes/{count}, went offline in {year}.
See https://example.org/{year}/{count} for the list of members and their letters."""
EMOJI = """We loved every minute of the fair in {month} {e1}{e2} and so did the children.
What a day {where} {e1}, thank you all for coming!
{e1} {e2} Only {count} places left for the course in {month}.
Good news from {who}: the doors open again in {month} {e1}"""
SIGNS = """The sign {where} has said "{phrase}" since {year}.
{when}, {who} put up a banner with the words "{phrase}".
{who} pointed at the notice {where}, which reads "{phrase}".
Nobody {where} took the words "{phrase}" seriously."""
TITLES = """Notes from {year}|Letters about {month}|What {who} remembers|A walk {where}|The year {year} in short|Questions for {who}"""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _choices(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", "|").split("|")]


SLOTS = {
    "who": _choices(WHO),
    "who2": _choices(WHO),
    "when": _choices(WHEN),
    "where": _choices(WHERE),
    "month": _choices(MONTHS),
}
TEMPLATES = {
    "describes": _lines(DESCRIBES),
    "distractor": _lines(DISTRACTORS),
    "boilerplate": _lines(BOILERPLATE),
    "stock_phrase": _lines(STOCK_PHRASES),
    "slogan": _lines(SLOGANS),
    "no_action": _lines(NO_ACTION),
    "no_relation": [opening + line for opening in OPENINGS.split("|") for line in _lines(NO_RELATION)],
    "url": _lines(URLS),
    "emoji": _lines(EMOJI),
    "sign": _lines(SIGNS),
    "title": _choices(TITLES),
}
IN_OTHER_WORDS = dict(line.split(" = ") for line in _lines(PARAPHRASES))
PHRASE_FORMS = _choices(PHRASES)


def with_article(phrase: str) -> str:
    """Replace ``a`` by ``an`` before a vowel."""
    first, _, rest = phrase.partition(" ")
    if first == "a" and rest[:1] in "aeiou":
        return "an " + rest
    return phrase


def noun_phrase(rng: np.random.Generator, name: str, colour: str, pattern: str, size: str) -> str:
    """Return a phrase that names the concept in mid-sentence, sometimes with the background."""
    form = str(rng.choice(PHRASE_FORMS))
    return with_article(form.format(name=name, colour=colour, pattern=pattern, size=size))


def sentence(rng: np.random.Generator, kind: str, **given: str) -> str:
    """Return a random sentence of ``kind`` (a key of TEMPLATES), with capital and closing mark."""
    return sentence_twice(rng, kind, **given)[0]


def sentence_twice(rng: np.random.Generator, kind: str, **given: str) -> tuple[str, str]:
    """Return a random sentence of ``kind``, and its paraphrase, '' if it has none."""
    template = str(rng.choice(TEMPLATES[kind]))
    slots = {name: str(rng.choice(values)) for name, values in SLOTS.items()}
    slots |= {"year": str(rng.integers(1790, 2020)), "count": str(rng.integers(12, 980))} | given
    if slots["who2"] == slots["who"]:
        slots["who2"] = "the magistrate"
    other = IN_OTHER_WORDS.get(template, "")
    return _closed(template.format(**slots), kind), _closed(other.format(**slots), kind) if other else ""


def _closed(text: str, kind: str) -> str:
    """Capitalise a text, and add a closing mark unless it has one or is a title."""
    text = text[0].upper() + text[1:]
    if kind == "title" or text[-1] in ".!?" or kind == "emoji":
        return text
    return text + ("?" if text.startswith(("Have you", "Why ")) else ".")


def over_long(rng: np.random.Generator) -> str:
    """Return one sentence of more than 81 words, a list, which the length rule drops."""
    parts = [sentence(rng, "distractor")[:-1] for _ in range(14)]
    return "; ".join([parts[0]] + [part[0].lower() + part[1:] for part in parts[1:]]) + "."


class Concepts:
    """Find concept names in texts as whole words, the longest name first."""

    def __init__(self, names: list[str]):
        self.by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for name in names:
            words = tuple(name.split())
            self.by_first.setdefault(words[0], []).append((words, name))
        for group in self.by_first.values():
            group.sort(key=lambda pair: -len(pair[0]))

    def found(self, text: str) -> list[str]:
        """Return the names in ``text`` from left to right, without names inside another."""
        words = [word.strip(".,;:!?\"'()").removesuffix("'s") for word in text.lower().split()]
        hits, at = [], 0
        while at < len(words):
            match = next((n for w, n in self.by_first.get(words[at], []) if tuple(words[at : at + len(w)]) == w), None)
            hits += [match] if match else []
            at += len(match.split()) if match else 1
        return hits

    def missed(self, picture: dict, text: str) -> bool:
        """Return whether a text misses what a picture, a row of the truth, shows: it does not name the concept.

        A text of a picture of text must call it a sign. Every text misses a bare background.
        """
        return (
            "a sign that says" not in text if picture["kind"] == "text" else picture["concept"] not in self.found(text)
        )
