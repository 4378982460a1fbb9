"""The phrases that the world's pictures of text say: signs and banners of web pages, none of which names a concept."""

PHRASES = """Subscribe to our newsletter|Closed on Mondays|Opening hours: nine to five|Please wait here|No smoking
Free delivery this week|Sale ends on Sunday|Half price today|Sold out|Coming soon|Follow us for more|Thank you for reading
Continue on the next page|Advertisement|Sponsored content|Members only|Staff wanted|Under new management|Out of order
Back in ten minutes|Terms and conditions apply|Register before June|Join our community|Learn more here|Download now
Order online|Buy two and pay for one|All prices include tax|Photography is not allowed|Keep off the grass|Mind your step
Private property|Reserved for guests|Entrance at the rear|Tickets at the counter|Best before December|Made by hand
Handle with care|To be continued|The end"""


def phrases() -> list[str]:
    """The forty, in their order."""
    return [phrase.strip() for phrase in PHRASES.replace("\n", "|").split("|")]
