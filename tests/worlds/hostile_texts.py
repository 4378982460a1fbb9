"""Texts, names and addresses that become scripts, styles or requests in a page that does not escape them."""

from pathlib import Path

from tests.worlds.published import published

FOREIGN = "http://203.0.113.9"  # a range reserved for documentation (RFC 5737)
SCRIPT = "window.pwned=1"
TEXT = (
    f"\"'><script>{SCRIPT}</script><img src=x onerror={SCRIPT}><svg/onload={SCRIPT}></textarea></title></select>"
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'></iframe><img src={FOREIGN}/a.png><base href={FOREIGN}>"
    f"<meta http-equiv=refresh content='0;url={FOREIGN}'><style>@import '{FOREIGN}/b.css'</style>"
    f"{{{{ 7*7 }}}}${{{SCRIPT}}}<a href='javascript:{SCRIPT}' hx-get='{FOREIGN}' hx-trigger=load "
    f"hx-on::load='{SCRIPT}'>"
    "\u202e\u0000 & so on"
).replace("\u0000", "")
ADDRESS = f'javascript:{SCRIPT}//" onerror="{SCRIPT}" x=\'{{n}}\'><script>{SCRIPT}</script>'


def hostile_lake(folder: Path) -> Path:
    """Publish a lake whose every text, name and address is hostile."""
    sentences = (TEXT, f"{TEXT} and again", f"so {TEXT}")
    published(folder, pictures=9, sentences=sentences, alt_text=TEXT, url=ADDRESS.replace("{{n}}", "{n}"),
              caption=TEXT, tags=(TEXT,), faults=((TEXT, "truncated", TEXT),))  # fmt: skip
    return folder
