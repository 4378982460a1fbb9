"""Generate English sentences from a small grammar, to train the demo's language model.

Words are drawn anew each time, in English word order, so that the model knows no sentence of the world by heart. A
model trained on the world's own sentence shapes would find all of them easy, and could not tell them from a repeated
word. The texts also contain what a model of the web knows by heart: stock phrases, and words repeated over and over.
"""

import random

from prose import BOILERPLATE, MONTHS

_PEOPLE = """aunt uncle cousin neighbour teacher librarian porter student shopkeeper friend editor grandfather grandmother
apprentice collector clerk guide binder assistant traveller committee council doctor painter lawyer farmer baker sailor
printer magistrate author reader visitor volunteer family member child mother father brother sister captain carpenter
gardener mechanic merchant messenger musician nurse officer owner pilot poet priest scholar secretary soldier stranger
tailor widow worker writer photographer engineer judge boy girl woman man king queen people_ twins_ others_ company
society crowd government hunter driver cook artist actor singer guest host master colleague partner expert inspector"""
_THINGS = """paper letter book picture drawing sketch illustration plate frame caption poster cover register page chapter
edition copy line article report archive minutes_ rule law contract notice price wage tax cost share speech lecture
lesson argument question answer story note list series example version symbol name word text sentence map chart table
chair box bag bottle cup glass spoon knife clock lamp candle window door roof stairs_ gate wall step terrace drawer desk
counter shelf bed curtain carpet mirror key lock coin stamp ring coat shoe dress shirt glove umbrella wheel cart wagon
boat ferry ship train bus car road route bridge canal river lake coast harbour island mountain valley forest field tree
branch leaf flower fruit seed harvest garden meadow farm market shop office factory workshop school hospital church
museum gallery library theatre hotel kitchen room hall yard courtyard cellar tower castle square street corner village
town city station meeting visit journey walk holiday party fair exhibition course game song dance film concert prize
plan idea reason mistake change difference problem repair shortage delay strike flood fire storm war election language
habit rule memory voice hand face eye head foot heart surface panel background ground backdrop colour shape pattern side
top bottom edge middle end beginning part half pair group place thing day night morning evening week month year century
hour minute moment summer winter season animal dog cat horse cow sheep bird fish insect bee stone metal engine machine
tool hammer rope brush pencil ink spelling talent luck favourite sign ticket bill entrance spot attention county summary opening rest painting"""
_MASS = """patience silence weather water bread milk sugar salt rain snow wind light music work help money time news advice
luck trouble space wood iron gold silver cloth wool glue dust smoke practice paper ground history law study knowledge"""
_ADJECTIVES = """old young new small large big tiny huge little long short high low wide narrow deep early late good bad
fine quiet loud bright dark heavy light warm cold dry wet clean dirty empty full open closed careful weary tired retired
local foreign famous favourite strange common rare simple plain difficult easy clear true wrong right real practical
free rich poor strong weak happy sad angry proud kind gentle rough smooth round flat sharp sudden steady slow quick
second third last first next main final whole single separate western eastern northern southern summer rainy sunny
modern ancient original usual certain several_ few_ many_ most_ red blue green yellow white black brown grey pink purple
orange wooden broken striped spotted shaded speckled glowing checkered mild beautiful useful important popular private
public pleasant serious similar special splendid terrible thick thin young youngest oldest smaller larger earlier upper lower silent visiting waiting moving far any_ much_"""
_ADVERBS = """slowly quickly carefully quietly loudly suddenly often always never sometimes usually rarely soon later again
once twice still already almost nearly only really simply plainly closely immediately finally together alone apart there
here away back outside inside upstairs everywhere slightly mostly especially well badly early late longer before now
then right gladly clearly"""
_TRANSITIVE = """draw/drew/drawn notice see/saw/seen find/found/found make/made/made paint place print use keep/kept/kept
read/read/read write/wrote/written send/sent/sent bring/brought/brought carry move repair finish begin/began/begun add
colour admire expect choose/chose/chosen want remember forget/forgot/forgotten explain show/showed/shown compare
recognise mark save need have/had/had learn know/knew/known change own buy/bought/bought sell/sold/sold lose/lost/lost
break/broke/broken build/built/built clean clear close open cover collect count describe discover draw/drew/drawn enjoy
examine fill follow hold/held/held share study teach/taught/taught visit watch like dislike love hate prefer name pass
order offer mention meet/met/met leave/left/left lead/led/led introduce invite help hear/heard/heard hide/hid/hidden
fetch depict catch/caught/caught blame attract answer ask accept burn cut/cut/cut eat/ate/eaten feed/fed/fed fix hang/hung/hung
join judge lift paint pay/paid/paid plant prepare press produce promise pull push raise receive return serve spend/spent/spent
steal/stole/stolen take/took/taken thank throw/threw/thrown touch understand/understood/understood wear/wore/worn
postpone suit register trade leave/left/left quote spoil settle"""
_INTRANSITIVE = """walk wait sleep/slept/slept sit/sat/sat stand/stood/stood stay arrive leave/left/left come/came/come go/went/gone
return work speak/spoke/spoken talk laugh cry sing/sang/sung dance play fall/fell/fallen rise/rose/risen run/ran/run
travel/travelled/travelled appear disappear happen last begin/began/begun end stop start change grow/grew/grown agree disagree complain
listen look move rest smile swim/swam/swum wander die live meet/met/met matter belong differ register fade gather"""
_SAYING = "say/said/said believe think/thought/thought know/knew/known hope fear explain remember learn notice promise agree admit claim"
_NAMES = """Clara Teresa Henrik Amari Okafor Anna Martin Peter Maria Thomas Laura Daniel Sofia Victor Ruth Samuel Nora Paul
Leeds Turin Oslo Vienna Lisbon Bristol York Prague Geneva Dublin"""
DETERMINERS = [
    "the",
    "the",
    "the",
    "the",
    "a",
    "a",
    "a",
    "this",
    "that",
    "my",
    "our",
    "his",
    "her",
    "their",
    "every",
    "one",
    "some",
    "another",
    "each",
    "no",
    "any",
    "much",
]
PREPOSITIONS = [
    "in",
    "on",
    "at",
    "by",
    "near",
    "behind",
    "under",
    "over",
    "across",
    "along",
    "beside",
    "between",
    "before",
    "after",
    "above",
    "against",
    "with",
    "from",
    "to",
    "of",
    "for",
    "about",
    "into",
    "through",
    "outside",
    "without",
    "around",
    "towards",
    "among",
]
TIMES = """last {season}|in the {season} of {year}|one {adjective} {day}|before {meal}|after {meal}|during the {adjective} {thing}|in {year}
many years ago|late in the {part}|early in the {part}|twice a {span}|once a {span}|every {month}|on the {ordinal} {part}
shortly before {hour}|in those days|while the {people} {intransitive}|when the {thing} {intransitive}|by {year}|after {year}
on {day}|for {count} {spans}|at the end of the {thing}|at the beginning of the {span}|towards the end of {month}|until {month}
on the way {home}|a few {spans} later|since {year}|at {hour}|all {span} long|at the turn of the {span}|in {month}""".replace(
    "\n", "|"
).split("|")
STOCK = f"""{BOILERPLATE}
Click here to read more.
All rights reserved.
Please enable JavaScript to view this page.
Subscribe to our newsletter.
Follow us on our social media pages.
Terms of use and privacy policy apply.
Your email address will not be published.
Required fields are marked with an asterisk.
Skip to main content.
This site uses cookies to give you the best experience.
Add to cart and continue shopping.
Sign in or create an account to continue.
The page you are looking for could not be found.""".split("\n")
ADDRESSES = [
    "Read more at https://www.example.org/{word}/{number}.",
    "See http://example.com/{year}/{number}.html for the {word} of the {word}.",
    "The page www.example.net/{word} was closed in {year}.",
]
PATTERNS = ["plain", "shaded", "glowing", "speckled", "striped", "checkered", "spotted"]
COLOURS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "grey", "white", "black"]


def _words(text: str) -> list[str]:
    return text.split()


def _forms(text: str) -> list[tuple[str, str, str, str]]:
    """Return (base, third person, past, participle) of each verb."""
    found = []
    for word in text.split():
        base, *rest = word.split("/")
        third = (
            base[:-1] + "ies"
            if base[-1] == "y" and base[-2] not in "aeou"
            else base + ("es" if base.endswith(("sh", "ch", "ss", "x")) or base == "go" else "s")
        )
        regular = base + "d" if base[-1] == "e" else base[:-1] + "ied" if third.endswith("ies") else base + "ed"
        found.append((base, "has" if base == "have" else third, *(rest or (regular, regular))))
    return found


def plural(noun: str) -> str:
    """Return the plural of a noun; ``minutes_``, without a singular, gives 'minutes'."""
    if noun.endswith("_"):
        return noun[:-1]
    irregular = {
        "man": "men",
        "woman": "women",
        "child": "children",
        "foot": "feet",
        "sheep": "sheep",
        "half": "halves",
        "leaf": "leaves",
        "knife": "knives",
        "shelf": "shelves",
        "fish": "fish",
    }
    if noun in irregular:
        return irregular[noun]
    if noun[-1] == "y" and noun[-2] not in "aeou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "sh", "ch", "x")) else "s")


class Grammar:
    """Random sentences from one seed; ``names`` are the pictures' names, ``rare`` are words that occur now and then."""

    def __init__(self, names: list[str], rare: list[str], seed: int, over: float = 0.08):
        """Create a grammar; ``over`` is the share of texts that repeat something."""
        self.over = over
        self.names, self.rare, self.rng = names, rare, random.Random(seed)
        self.people, self.things = _words(_PEOPLE), _words(_THINGS)
        self.mass, self.adjectives, self.adverbs = _words(_MASS), _words(_ADJECTIVES), _words(_ADVERBS)
        self.transitive, self.intransitive, self.saying = _forms(_TRANSITIVE), _forms(_INTRANSITIVE), _forms(_SAYING)
        self.proper, self.months = _words(_NAMES), MONTHS.split("|")

    def text(self) -> str:
        """Return a sentence; a few texts are stock phrases, addresses, titles or repetitions."""
        rng, draw = self.rng, self.rng.random()
        if draw < 0.03:
            return rng.choice(STOCK).strip()
        if draw < 0.04:
            given = {"word": rng.choice(self.things), "number": rng.randint(10, 999), "year": rng.randint(1790, 2025)}
            return rng.choice(ADDRESSES).format(**given)
        if draw < 0.07:
            return self.title()
        if draw < 0.07 + self.over:
            return self.over_and_over()
        words = self.sentence().replace(" ,", ",").split(" ")
        if rng.random() < 0.1:
            words[rng.randrange(len(words))] = rng.choice(self.rare)
        text = " ".join(words)
        text = text[0].upper() + text[1:]
        return text if text[-1] in ".?!" else text + rng.choice("......!")

    def over_and_over(self) -> str:
        """Repeat one to four words of any kind, or one to five of a sentence, three times or more.

        From these texts a model learns to expect a repetition.
        """
        rng = self.rng
        if rng.random() < 0.4:
            words = self.sentence().split(" ")
            at = rng.randrange(len(words))
            words = words[at : at + rng.randint(1, 5)]
        else:
            kinds = (
                self.rare,
                self.things,
                DETERMINERS,
                self.adjectives,
                self.proper,
                self.people,
                self.names,
                PREPOSITIONS,
            )
            words = [rng.choice(rng.choice(kinds)).strip("_") for _ in range(rng.choice((1, 1, 1, 2, 3, 4)))]
        text = " ".join(words * rng.randint(3, max(4, 30 // len(words))))
        return (text[0].upper() + text[1:] if rng.random() < 0.5 else text) + rng.choice(("", "."))

    def title(self) -> str:
        """Return a title, without a verb and without a full stop."""
        rng = self.rng
        head = rng.choice([plural, str.strip])(rng.choice(self.things)).strip("_")
        tail = rng.choice(
            [
                lambda: f"from {rng.randint(1790, 2025)}",
                self.place,
                lambda: f"for {self.person()}",
                lambda: f"about {rng.choice(self.months)}",
                lambda: f"and {plural(rng.choice(self.things))}",
            ]
        )()
        text = f"{self.article(rng.choice(('', 'a ', 'the ', '')) + head)} {tail}"
        return text[0].upper() + text[1:]

    def sentence(self) -> str:
        """Return a sentence without capital and full stop."""
        rng, draw = self.rng, self.rng.random()
        if draw < 0.5:
            return self.clause()
        if draw < 0.62:
            joint = rng.choice(
                [
                    ", and",
                    ", but",
                    ", although",
                    ", though",
                    " while",
                    " because",
                    " when",
                    " if",
                    ", which",
                    " before",
                    ", so",
                ]
            )
            return f"{self.clause()}{joint} {self.clause() if joint != ', which' else self.past(rng.random() < 0.5)}"
        if draw < 0.69:
            return f"there {rng.choice(('is', 'was', 'was', 'stands'))} {self.thing()} {self.place()}"
        if draw < 0.73:
            return f"there {rng.choice(('are', 'were'))} {self.many()} {self.place()}"
        if draw < 0.78:
            return f"it {rng.choice(('is', 'was', 'would be', 'is not', 'was not', 'took ' + self.person()))} {rng.choice(self.adjectives).strip('_')} to {rng.choice(self.transitive)[0]} {self.thing()}"
        if draw < 0.82:
            return f"{rng.choice(('please ', '', '', 'you may '))}{rng.choice(self.transitive)[0]} {self.thing()} {rng.choice([self.place, self.time])()}"
        if draw < 0.86:
            return f"{rng.choice(('have you ever', 'why have you', 'when had they'))} {rng.choice(self.transitive)[3]} {self.thing()}?"
        if draw < 0.91:
            return f"what {self.person()} {rng.choice(self.transitive)[2]} {rng.choice(('', 'best ', 'most '))}{rng.choice(('is', 'was'))} {self.thing()}"
        if draw < 0.95:
            return f"{self.place()} {rng.choice(('there is', 'there was', 'stood', 'stands', 'we see', 'you can see'))} {self.thing()}"
        return f"{self.thing()}, {rng.choice(('as ', '', ''))}{rng.choice(self.transitive)[3]} {rng.choice([self.place, self.time])()}"

    def clause(self) -> str:
        """Return subject and predicate, often with a time or place before or after them."""
        rng = self.rng
        before = f"{self.time()}{rng.choice((',', ','))} " if rng.random() < 0.22 else ""
        behind = "".join(
            f" {rng.choice([self.place, self.time, self.place, self.manner])()}"
            for _ in range(rng.choice((0, 1, 1, 1, 2)))
        )
        plural_subject = rng.random() < 0.2
        subject = (
            rng.choice((self.many, self.pronoun))()
            if plural_subject
            else rng.choice([self.person, self.person, self.thing])()
        )
        return f"{before}{subject} {self.past(plural_subject)}{behind}"

    def past(self, many: bool) -> str:
        """Return one predicate or two."""
        found = self.predicate(many)
        if self.rng.random() < 0.14:
            found += self.rng.choice((" and ", " and ", " but ", ", and then ")) + self.predicate(many)
        return found

    def predicate(self, many: bool) -> str:
        """Return a predicate, in most cases in the past tense."""
        rng, draw = self.rng, self.rng.random()
        was = "were" if many else "was"
        verb, alone = rng.choice(self.transitive), rng.choice(self.intransitive)
        adverb = f"{rng.choice(self.adverbs)} " if rng.random() < 0.12 else ""
        if draw < 0.36:
            return f"{adverb}{verb[2]} {self.thing()}"
        if draw < 0.4:
            return f"{alone[2]} {rng.choice(PREPOSITIONS)} {rng.choice([self.person, self.thing])()}"
        if draw < 0.44:
            return f"{adverb}{alone[2]}"
        if draw < 0.48:
            return f"{rng.choice(('would', 'will', 'did not', 'could not', 'had to', 'may'))} {adverb}{alone[0]}"
        if draw < 0.58:
            return f"{rng.choice((was, was, 'has been' if not many else 'have been', 'had been', 'is' if not many else 'are'))} {adverb}{verb[3]}{rng.choice(('', '', ' by ' + self.person()))}"
        if draw < 0.66:
            return f"{rng.choice((was, was, 'became', 'seemed', 'looks' if not many else 'look', 'remained'))} {rng.choice(('', '', 'very ', 'too ', 'almost '))}{rng.choice(self.adjectives).strip('_')}"
        if draw < 0.74:
            return (
                f"{rng.choice(('would', 'could', 'will', 'must', 'had to', 'may', 'cannot'))} {verb[0]} {self.thing()}"
            )
        if draw < 0.76:
            return f"{alone[0] if many else alone[1]} {rng.choice(self.adverbs)}"
        if draw < 0.82:
            return f"{'have' if many else rng.choice(('has', 'had', 'had'))} {rng.choice(('', '', 'never ', 'always ', 'not '))}{verb[3]} {self.thing()}"
        if draw < 0.88:
            return f"{adverb}{verb[0] if many else verb[1]} {self.thing()}"
        if draw < 0.94:
            return f"{rng.choice(self.saying)[2]} that {self.clause()}"
        return f"{rng.choice(('wanted', 'tried', 'began', 'agreed', 'promised', 'learned', 'decided', 'had', 'hoped', 'prefers', 'tend' if many else 'tends'))} to {verb[0]} {self.thing()}"

    def person(self) -> str:
        """Return a noun phrase or pronoun for a person."""
        rng, draw = self.rng, self.rng.random()
        if draw < 0.12:
            return rng.choice(("Mr ", "Mrs ", "Doctor ", "", "", "")) + rng.choice(self.proper)
        if draw < 0.22:
            return rng.choice(
                ("he", "she", "it", "he", "she", "nobody", "someone", "anyone", "everyone", "no one", "who", "I")
            )
        if draw < 0.28:
            return f"{self.person()} and {self.person()}"
        said, draw = self.noun(self.people), rng.random()
        if draw < 0.12:
            return f"{said} {rng.choice(('from', 'of', 'in', 'with', 'who ' + rng.choice(self.transitive)[2]))} {rng.choice([self.thing, lambda: rng.choice(self.proper)])()}"
        return f"{said} {rng.choice(self.proper)}" if draw < 0.16 else said

    def noun(self, nouns: list[str]) -> str:
        """Return one of ``nouns`` with its article, sometimes with an adjective, another noun or a possessor."""
        rng = self.rng
        noun, draw = rng.choice(nouns), rng.random()
        lead = rng.choice(DETERMINERS)
        if draw < 0.08:
            lead = f"the {rng.choice(self.people).strip('_')}'s" if draw < 0.05 else f"{rng.choice(self.proper)}'s"
        elif noun[-1] == "_":
            lead = "the"
        described = f"{rng.choice(self.adjectives).strip('_')} " if rng.random() < 0.35 else ""
        kind = f"{rng.choice(self.things).strip('_')} " if rng.random() < 0.12 else ""
        return self.article(f"{lead} {described}{kind}{noun.strip('_')}")

    def thing(self) -> str:
        """Return a noun phrase or pronoun for a thing."""
        rng, draw = self.rng, self.rng.random()
        if draw < 0.3:
            return self.pictured()
        if draw < 0.36:
            return rng.choice(("", "the ", "the ", "much ")) + rng.choice(self.mass)
        if draw < 0.5:
            return self.many()
        if draw < 0.58:
            return rng.choice(
                ("it", "them", "everything", "everything else", "nothing", "her", "him", "us", "one", "something")
            )
        said = self.noun(self.things)
        return f"{said} of {self.noun(self.things)}" if rng.random() < 0.15 else said

    def pictured(self) -> str:
        """Return a phrase for something that a picture of the world may show, sometimes with its background."""
        rng = self.rng
        lead = rng.choice(
            (
                "the ",
                "the ",
                "a ",
                "a ",
                "that ",
                "one ",
                "a picture of the ",
                "a drawing of a ",
                "an image of a ",
                "another ",
                "two ",
            )
        )
        described = f"{rng.choice(self.adjectives).strip('_')} " if rng.random() < 0.2 else ""
        said = self.article(f"{lead}{described}{rng.choice(self.names)}")
        if rng.random() < 0.25:
            ground = f"{rng.choice((rng.choice(PATTERNS) + ' ', ''))}{rng.choice(COLOURS)} {rng.choice(('background', 'ground', 'surface', 'wall', 'backdrop', 'panel'))}"
            said += f" {rng.choice(('on', 'before', 'against', 'over', 'in front of', 'with'))} {self.article('a ' + ground)}"
        return said

    def many(self) -> str:
        """Return a plural noun phrase."""
        rng = self.rng
        lead = rng.choice(
            (
                "the",
                "the",
                "",
                "several",
                "many",
                "most",
                "some",
                "all",
                "few",
                "more than " + str(rng.randint(12, 999)),
                str(rng.randint(2, 999)),
                "two",
                "three",
                "our",
                "their",
                "about " + str(rng.randint(12, 999)),
                "these",
            )
        )
        described = f"{rng.choice(self.adjectives).strip('_')} " if rng.random() < 0.3 else ""
        noun = plural(rng.choice(rng.choice((self.things, self.people))))
        return f"{lead} {described}{noun}".strip()

    def pronoun(self) -> str:
        """Return a plural pronoun or similar phrase."""
        return self.rng.choice(
            (
                "we",
                "they",
                "you",
                "both sides",
                "all of them",
                "some",
                "others",
                "most of the " + plural(self.rng.choice(self.things)),
            )
        )

    def place(self) -> str:
        """Return a phrase of place."""
        rng, draw = self.rng, self.rng.random()
        if draw < 0.15:
            inner = rng.choice(("back", "end", "top", "side", "middle", "margin", "left", "right", "edge", "corner"))
            return f"{rng.choice(('at', 'in', 'on', 'to'))} the {inner} of the {rng.choice(self.things).strip('_')}"
        if draw < 0.22:
            return f"in {self.article('a ' + rng.choice(('village', 'town', 'city', 'street', 'house', 'room')))} {rng.choice(('near', 'outside', 'in'))} {rng.choice(self.proper)}"
        if draw < 0.27:
            return f"on {rng.choice(('page', 'plate', 'line'))} {rng.choice(('two', 'three', 'ten', 'twenty', 'forty', 'fifty', str(rng.randint(2, 99))))}"
        described = f"{rng.choice(self.adjectives).strip('_')} " if rng.random() < 0.35 else ""
        return f"{rng.choice(PREPOSITIONS)} {self.article(rng.choice(('the', 'the', 'the', 'a', 'our', 'this')) + ' ' + described + rng.choice(self.things).strip('_'))}"

    def time(self) -> str:
        """Return a phrase of time."""
        rng = self.rng
        return self.article(rng.choice(TIMES).format(
            season=rng.choice(("spring", "summer", "autumn", "winter")), year=rng.randint(1790, 2025), adjective=rng.choice(self.adjectives).strip("_"),
            day=rng.choice(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "morning", "evening", "day")),
            meal=rng.choice(("breakfast", "lunch", "dinner", "work", "school", "the harvest")), thing=rng.choice(self.things).strip("_"),
            part=rng.choice(("morning", "afternoon", "evening", "night", "day")), span=rng.choice(("day", "week", "month", "year", "century")),
            spans=rng.choice(("minutes", "hours", "days", "weeks", "months", "years")), month=rng.choice(self.months), ordinal=rng.choice(("first", "second", "third", "last")),
            hour=rng.choice(("noon", "midnight", "dawn", "sunset", "five")), people=plural(rng.choice(self.people)), intransitive=rng.choice(self.intransitive)[2],
            count=rng.choice(("two", "three", "ten", "many", str(rng.randint(2, 999)))), home=rng.choice(("home", "back", "to the " + rng.choice(self.things).strip("_"))),
        ))  # fmt: skip

    def manner(self) -> str:
        """Return a phrase of manner."""
        rng = self.rng
        return rng.choice(
            (
                lambda: rng.choice(self.adverbs),
                lambda: f"with {self.thing()}",
                lambda: f"for {self.person()}",
                lambda: f"without {rng.choice(self.mass)}",
                lambda: f"{rng.choice(('without', 'by', 'after', 'before'))} {self.gerund()}",
                lambda: f"to {rng.choice(self.transitive)[0]} {self.thing()}",
                lambda: f"about {rng.choice(('almost ', '', ''))}{self.thing()}",
                lambda: f"more than {self.thing()}",
                lambda: f", {rng.choice(('mostly', 'especially'))} {rng.choice((self.place, self.time))()}",
                lambda: (
                    f"as {rng.choice(self.adverbs)} as {rng.choice(('ever', 'before', str(rng.randint(1790, 2025))))}"
                ),
            )
        )()

    def gerund(self) -> str:
        """Return a gerund, sometimes with an object."""
        base = self.rng.choice(self.rng.choice((self.transitive, self.intransitive)))[0]
        stem = base[:-1] if base[-1] == "e" and base[-2] not in "eoy" else base
        return f"{stem}ing" + self.rng.choice(("", f" {self.thing()}"))

    def article(self, phrase: str) -> str:
        """Replace ``a`` by ``an`` before a vowel."""
        words = phrase.split(" ")
        return " ".join(
            "an" if word == "a" and after[:1] in "aeiou" and after else word
            for word, after in zip(words, [*words[1:], ""], strict=True)
        )
