"""Draw the small Mermaid flowcharts of the documents as SVG: the site loads no script from elsewhere.

Only what these charts use is understood: boxes in square brackets, arrows with a label, several boxes joined by '&'.
Boxes stand in rows by their longest way from the start. A subgraph is one wide box that lists its boxes.
"""

import html
import re
from dataclasses import dataclass, field

_NODE = re.compile(r"(\w+)(?:[\[({]+\"?(.*?)\"?[\])}]+)?$")
_ARROW = re.compile(r"\s*-->(?:\|([^|]*)\|)?\s*")
WIDTH, WIDE, LINE, GAP_X, GAP_Y = 190, 470, 17, 44, 76


@dataclass
class Chart:
    """The boxes of a flowchart with their texts, and its arrows as (from, to, label)."""

    boxes: dict[str, str] = field(default_factory=dict)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)
    frames: dict[str, str] = field(default_factory=dict)  # box -> the subgraph that it is in

    def folded(self) -> "Chart":
        """Return the chart with each subgraph as one box: its title, then a line for each of its boxes."""
        inner = {name: [] for name in self.frames.values()}
        for name, frame in self.frames.items():
            inner[frame].append(f"· {self.boxes[name]}")
        boxes = {name: "\n".join([text, *inner.get(name, [])]) for name, text in self.boxes.items()}
        arrows = [
            (self.frames.get(one, one), self.frames.get(other, other), label) for one, other, label in self.arrows
        ]
        shown = {name: text for name, text in boxes.items() if name not in self.frames}
        return Chart(shown, list(dict.fromkeys(arrow for arrow in arrows if arrow[0] != arrow[1])))


def as_svg(source: str) -> str:
    """Return the flowchart as an inline SVG."""
    parsed = _parsed(source)
    chart, width = parsed.folded(), WIDE if parsed.frames else WIDTH
    rows = _rows(chart)
    texts = {name: [line for part in text.split("\n") for line in _wrapped(part, width // 8 + 3)]
             for name, text in chart.boxes.items()}  # fmt: skip
    height = {name: LINE * len(lines) + 14.0 for name, lines in texts.items()}
    widest = max(map(len, rows))
    total = widest * (width + GAP_X) + GAP_X
    places, top = {}, 10
    for row in rows:
        left = (total - len(row) * (width + GAP_X) + GAP_X) / 2
        for place, name in enumerate(row):
            places[name] = (left + place * (width + GAP_X), top)
        top += max(height[name] for name in row) + GAP_Y
    parts = [_arrow(arrow, places, height, width) for arrow in chart.arrows]
    parts += [_box(places[name], height[name], width, texts[name]) for name in chart.boxes]
    return (
        f'<svg class="chart" viewBox="0 0 {total} {top - GAP_Y + 12}" role="img" xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z"/></marker></defs>{"".join(parts)}</svg>\n'
    )


def _parsed(source: str) -> Chart:
    """Read boxes and arrows."""
    chart, frame = Chart(), ""
    for line in source.splitlines():
        text = line.strip()
        if not text or text.startswith(("flowchart", "subgraph", "end")):
            named = re.match(r"subgraph (\w+) \[(.*)\]", text)
            frame = named[1] if named else ""
            chart.boxes |= {named[1]: named[2]} if named else {}
            continue
        parts = _ARROW.split(text)
        groups = [[_node(one.strip(), chart) for one in _joined(part)] for part in parts[::2]]
        if frame:
            chart.frames |= {name: frame for group in groups for name in group}
        for before, label, after in zip(groups, parts[1::2], groups[1:], strict=False):
            chart.arrows += [(one, other, label or "") for one in before for other in after]
    return chart


def _joined(text: str) -> list[str]:
    """Split boxes that are joined by '&' outside of brackets."""
    return re.split(r"\s&\s(?![^\[]*\])", text)


def _node(text: str, chart: Chart) -> str:
    """Add a box, with its text where that is given; return its name."""
    found = _NODE.match(text)
    name = found[1] if found else text
    given = found[2] if found else None
    chart.boxes[name] = given or chart.boxes.get(name, name)
    return name


def _rows(chart: Chart) -> list[list[str]]:
    """Return the boxes by row: each below all that lead to it, but for arrows that lead back."""
    row = dict.fromkeys(chart.boxes, 0)
    order = {name: place for place, name in enumerate(chart.boxes)}
    for _ in chart.boxes:
        for one, other, _ in chart.arrows:
            if order[one] < order[other]:
                row[other] = max(row[other], row[one] + 1)
    return [found for n in range(max(row.values()) + 1) if (found := [name for name in chart.boxes if row[name] == n])]


def _wrapped(text: str, most: int = 26) -> list[str]:
    """Break a text into lines."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= most:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _box(place: tuple[float, float], height: float, width: int, lines: list[str]) -> str:
    """Draw a box with its text."""
    x, y = place
    texts = "".join(
        f'<text x="{x + width / 2}" y="{y + 20 + LINE * n}">{html.escape(line)}</text>' for n, line in enumerate(lines)
    )
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>{texts}'


def _arrow(
    arrow: tuple[str, str, str], places: dict[str, tuple[float, float]], height: dict[str, float], width: int
) -> str:
    """Draw an arrow from the lower edge of one box to the upper edge of another, or back beside both."""
    one, other, label = arrow
    (x, y), (to_x, to_y) = places[one], places[other]
    down = to_y > y
    side, out = (0, -1) if x <= to_x else (width, 1)  # an arrow that leads back leaves and arrives at this side
    start = (x + width / 2, y + height[one]) if down else (x + side, y + height[one] / 2)
    end = (to_x + width / 2, to_y) if down else (to_x + side, to_y + height[other] / 2)
    bend = f"C{start[0]} {start[1] + 30} {end[0]} {end[1] - 30}" if down else (
        f"C{start[0] + 60 * out} {start[1]} {start[0] + 60 * out} {end[1]}"
    )  # fmt: skip
    path = f'<path class="line" d="M{start[0]} {start[1]}{bend} {end[0]} {end[1]}" marker-end="url(#tip)"/>'
    share = 0.6 if down else 0.5
    middle = (start[0] + (end[0] - start[0]) * share if down else start[0], start[1] + (end[1] - start[1]) * share)
    lines = _wrapped(label, 18) if label else []
    top = middle[1] - 6 * (len(lines) - 1)
    texts = "".join(
        f'<text class="label" x="{middle[0]}" y="{top + 12 * n}">{html.escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    return path + texts
