"""Define what a word is: a run of letters and digits of any script, with the marks that belong to them."""

import regex

# By Unicode's word boundaries (UAX 29, rule WB4) combining marks and joiners belong to the character before them: vowel
# signs of Hindi, points of Hebrew and Arabic, decomposed accents. Python's \\w has none of them.
RUN = r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_\u200c\u200d]*"
WORD = regex.compile(RUN)
