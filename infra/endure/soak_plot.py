"""Draw what a soak measured, night by night, as an SVG: one small chart a quantity, each from zero."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, PAD, COLUMNS = 250, 110, 26, 3


def plot(nights: Sequence[dict[str, float]]) -> str:
    """Return the SVG of all quantities."""
    names = list(nights[0])
    rows = -(-len(names) // COLUMNS)
    charts = [_chart(name, [night[name] for night in nights], n) for n, name in enumerate(names)]
    size = f'width="{COLUMNS * WIDTH}" height="{rows * HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{"".join(charts)}</svg>\n'
    )


def _chart(name: str, values: list[float], n: int) -> str:
    left, top = n % COLUMNS * WIDTH + PAD, n // COLUMNS * HEIGHT + PAD
    wide, high, most = WIDTH - 2 * PAD, HEIGHT - 2 * PAD, max(values) or 1.0
    step = wide / max(1, len(values) - 1)
    points = " ".join(
        f"{left + at * step:.1f},{top + high * (1 - value / most):.1f}" for at, value in enumerate(values)
    )
    axis = f'<path d="M{left} {top}V{top + high}H{left + wide}" fill="none" stroke="#999"/>'
    title = f'<text x="{left}" y="{top - 8}">{name}: {values[-1]:.3g} (most {most:.3g})</text>'
    return f'{axis}{title}<polyline points="{points}" fill="none" stroke="#06c" stroke-width="1.5"/>\n'
