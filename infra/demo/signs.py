"""The phrases that the world's pictures of text say: signs and banners of web pages, none of which names a concept."""

PHRASES = """Sold out|The end|Coming soon|Out of order|Members only|Half price today|Closed on Mondays|Buy two and pay for one
Subscribe to our newsletter|Terms and conditions apply|Opening hours: nine to five|Thank you for reading"""


def phrases() -> list[str]:
    """The twelve, in their order."""
    return [phrase.strip() for phrase in PHRASES.replace("\n", "|").split("|")]
