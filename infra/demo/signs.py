"""Define the phrases in the world's pictures of text: signs and banners of web pages; none names a concept."""

PHRASES = """Sold out|The end|Coming soon|Out of order|Members only|Half price today|Closed on Mondays|Buy two and pay for one
Subscribe to our newsletter|Terms and conditions apply|Opening hours: nine to five|Thank you for reading"""


def phrases() -> list[str]:
    """Return the twelve phrases."""
    return [phrase.strip() for phrase in PHRASES.replace("\n", "|").split("|")]
