"""Paint training pictures in batches on a torch device, unlike ``render.py`` in colours, patterns and degradations.

The world's pictures must stay unseen in training, so this module shares no code, palette or parameter with the world's
renderer.
"""

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont

PATTERN_WORDS = ["plain", "shaded", "glowing", "speckled", "striped", "checkered", "spotted"]
# colour word -> hue centre and half width (turns), saturation range, value range
COLOUR_RANGES = {
    "red": (0.0, 0.025, 0.6, 1.0, 0.55, 0.95),
    "orange": (0.085, 0.02, 0.6, 1.0, 0.8, 1.0),
    "yellow": (0.145, 0.025, 0.45, 0.9, 0.85, 1.0),
    "green": (0.35, 0.08, 0.35, 0.9, 0.35, 0.85),
    "blue": (0.61, 0.05, 0.45, 0.95, 0.45, 0.95),
    "purple": (0.76, 0.045, 0.35, 0.85, 0.4, 0.85),
    "pink": (0.93, 0.04, 0.2, 0.5, 0.85, 1.0),
    "brown": (0.065, 0.025, 0.45, 0.8, 0.25, 0.58),
    "grey": (0.5, 0.5, 0.0, 0.1, 0.35, 0.75),
    "white": (0.5, 0.5, 0.0, 0.06, 0.9, 1.0),
    "black": (0.5, 0.5, 0.0, 0.5, 0.03, 0.18),
}
COLOUR_WORDS = list(COLOUR_RANGES)


def hsv_to_rgb(h: torch.Tensor, s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Convert hue (turns), saturation and value of equal shape to RGB, stacked on dim 1."""
    k = (torch.stack([h + 5 / 6, h + 3 / 6, h + 1 / 6], 1) * 6) % 6
    return v[:, None] - v[:, None] * s[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


def shift_hue(pixels: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotate every hue of (b, 3, h, w) by ``turn`` (b,) of the circle."""
    top, arg = pixels.max(1)
    low = pixels.min(1).values
    span = (top - low).clamp_min(1e-5)
    r, g, b = pixels.unbind(1)
    hue = torch.where(arg == 0, (g - b) / span, torch.where(arg == 1, 2 + (b - r) / span, 4 + (r - g) / span)) / 6
    return hsv_to_rgb((hue + turn[:, None, None]) % 1, (top - low) / top.clamp_min(1e-5), top)


class Painter:
    """Paint glyphs, (n, s, s, 4) uint8, at ``side`` px on a device."""

    def __init__(self, glyphs: np.ndarray, side: int, device: str):
        straight = torch.from_numpy(glyphs).to(device).permute(0, 3, 1, 2).float() / 255
        self.glyphs = torch.cat([straight[:, :3] * straight[:, 3:], straight[:, 3:]], 1)  # premultiplied
        self.side, self.device = side, device
        ranges = torch.tensor(list(COLOUR_RANGES.values()), device=device)
        self.ranges = ranges

    def _u(self, n: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Draw ``n`` uniform numbers."""
        return torch.rand(n, device=self.device) * (high - low) + low

    def _colour(self, which: torch.Tensor) -> torch.Tensor:
        """Draw random colours (b, 3) of the given colour words."""
        middle, half, s0, s1, v0, v1 = self.ranges[which].unbind(1)
        n = len(which)
        return hsv_to_rgb(
            (middle + half * self._u(n, -1, 1)) % 1, s0 + (s1 - s0) * self._u(n), v0 + (v1 - v0) * self._u(n)
        )

    def _mix(self, pattern: torch.Tensor, xs: torch.Tensor, ys: torch.Tensor) -> torch.Tensor:
        """Return (b, S, S) in 0..1: the share of the second background colour; xs, ys are (b, S, S) in about -1..1."""
        n, size = len(pattern), xs.shape[-1]
        turn = self._u(n, 0, 2 * np.pi)[:, None, None]
        along, across = turn.cos() * xs + turn.sin() * ys, turn.cos() * ys - turn.sin() * xs
        phase = self._u(n, 0, 6.3)[:, None, None]
        shaded = torch.sigmoid(along * self._u(n, 1, 4)[:, None, None] + self._u(n, -0.7, 0.7)[:, None, None])
        far = torch.hypot(xs - self._u(n, -1, 1)[:, None, None], ys - self._u(n, -1, 1)[:, None, None])
        glowing = (far * self._u(n, 0.35, 1.0)[:, None, None]).clamp(0, 1) ** self._u(n, 0.7, 1.6)[:, None, None]
        grains = [
            F.interpolate(torch.rand(n, 1, c, c, device=self.device), size=size, mode="bicubic")[:, 0]
            for c in (5, 9, 16, 28)
        ]
        speckled = torch.stack(grains, 1)[torch.arange(n), torch.randint(4, (n,), device=self.device)].clamp(0, 1)
        wave = torch.sin(along * self._u(n, 7, 34)[:, None, None] + phase) - self._u(n, -0.6, 0.6)[:, None, None]
        striped = torch.sigmoid(wave * self._u(n, 4, 60)[:, None, None])
        cell = self._u(n, 0.08, 0.4)[:, None, None]
        checkered = ((along / cell + phase).floor() + (across / cell).floor()) % 2
        spotted = torch.zeros_like(xs)
        for k in range(22):
            there = (self._u(n) < 0.85 if k > 4 else self._u(n) < 2)[:, None, None]
            spot = torch.hypot(xs - self._u(n, -1.1, 1.1)[:, None, None], ys - self._u(n, -1.1, 1.1)[:, None, None])
            spotted = torch.maximum(spotted, ((spot < self._u(n, 0.05, 0.3)[:, None, None]) & there).float())
        fields = torch.stack([torch.zeros_like(xs), shaded, glowing, speckled, striped, checkered, spotted], 1)
        return fields[torch.arange(n), pattern]

    def _ground(self, pattern: torch.Tensor, colour: torch.Tensor, xs: torch.Tensor, ys: torch.Tensor) -> torch.Tensor:
        """Paint backgrounds (b, 3, S, S) of the given patterns and colours."""
        n = len(pattern)
        base = self._colour(colour)
        step = (torch.rand(n, 1, device=self.device) < 0.5).float() * 2 - 1
        other = (base + step * self._u(n, 0.1, 0.36)[:, None] + 0.08 * torch.randn(n, 3, device=self.device)).clamp(
            0, 1
        )
        mix = self._mix(pattern, xs, ys)[:, None]
        return base[..., None, None] * (1 - mix) + other[..., None, None] * mix

    @torch.no_grad()
    def paint(
        self, concepts: torch.Tensor, pattern: torch.Tensor, colour: torch.Tensor, large: torch.Tensor
    ) -> torch.Tensor:
        """Paint a fresh rendering of each concept (b,), at twice the side, and average it down.

        ``pattern`` and ``colour`` index the word lists. ``large`` (b,) bool selects a glyph beyond 65 % of the shorter
        side.

        Returns:
            Pictures, (b, 3, side, side) in 0..1.
        """
        n, big = len(concepts), 2 * self.side
        line = (torch.arange(big, device=self.device) + 0.5) / big * 2 - 1
        stretch = torch.exp(self._u(n, -0.28, 0.28))  # a wide or high picture is squeezed into the square
        wide, high = stretch.clamp_min(1)[:, None, None], (1 / stretch).clamp_min(1)[:, None, None]
        xs, ys = line[None, None, :] * wide, line[None, :, None] * high
        xs, ys = xs.expand(n, big, big), ys.expand(n, big, big)
        ground = self._ground(pattern, colour, xs, ys)
        size, angle = torch.where(large, self._u(n, 0.65, 0.92), self._u(n, 0.4, 0.65)), self._u(n, -0.65, 0.65)
        slack = 1.0 - size + 0.25 * (self._u(n) < 0.25).float()  # a quarter may be slightly outside the frame
        cx = self._u(n, -1, 1)[:, None, None] * (wide - 1 + slack[:, None, None])
        cy = self._u(n, -1, 1)[:, None, None] * (high - 1 + slack[:, None, None])
        cos, sin, size3 = angle.cos()[:, None, None], angle.sin()[:, None, None], size[:, None, None]
        gx, gy = (cos * (xs - cx) - sin * (ys - cy)) / size3, (sin * (xs - cx) + cos * (ys - cy)) / size3
        over = F.grid_sample(self.glyphs[concepts], torch.stack([gx, gy], -1), align_corners=False)
        pixels = F.avg_pool2d(ground * (1 - over[:, 3:]) + over[:, :3], 2)
        return pixels.clamp(0, 1)

    @torch.no_grad()
    def degrade(self, pixels: torch.Tensor) -> torch.Tensor:
        """Change light and contrast, and add blur, coarse chroma and noise, as cameras and encoders do."""
        n = len(pixels)
        gain, lift = self._u(n, 0.85, 1.15)[:, None, None, None], self._u(n, -0.06, 0.06)[:, None, None, None]
        out = (pixels - 0.5) * gain + 0.5 + lift
        soft = F.interpolate(F.avg_pool2d(out, 2), scale_factor=2, mode="bilinear")
        share = (self._u(n) * (self._u(n) < 0.4).float())[:, None, None, None]
        out = out + 0.7 * share * (soft - out)
        grey, soft_grey = out.mean(1, keepdim=True), soft.mean(1, keepdim=True)
        coarse = (self._u(n) < 0.5).float()[:, None, None, None]
        out = out + coarse * ((soft - soft_grey) - (out - grey))
        noise = torch.randn_like(out) * (0.04 * self._u(n) ** 2)[:, None, None, None]
        return (out + noise).clamp(0, 1)

    @torch.no_grad()
    def copy(self, pixels: torch.Tensor) -> torch.Tensor:
        """Make a near copy of each picture: a third mirrored, half recoloured, the rest cropped by a few per cent."""
        n = len(pixels)
        kind = torch.rand(n, device=self.device)
        mirrored = torch.where((kind < 0.33)[:, None, None, None], pixels.flip(-1), pixels)
        turn = self._u(n, 0.08, 0.45) * ((self._u(n) < 0.5).float() * 2 - 1)
        shifted = shift_hue(mirrored, torch.where((kind >= 0.33) & (kind < 0.83), turn, torch.zeros_like(turn)))
        keep = torch.where(kind >= 0.83, self._u(n, 0.94, 1.0), torch.ones_like(kind))
        theta = torch.zeros(n, 2, 3, device=self.device)
        theta[:, 0, 0], theta[:, 1, 1] = keep, keep
        theta[:, :, 2] = (torch.rand(n, 2, device=self.device) * 2 - 1) * (1 - keep)[:, None]
        grid = F.affine_grid(theta, list(shifted.shape), align_corners=False)
        return F.grid_sample(shifted, grid, align_corners=False, padding_mode="border")


class Signs(Painter):
    """Paint phrases, each in nine layouts, and backgrounds without anything on them."""

    SIDE, LAYOUTS = 256, 9  # px of a layout's mask; layouts a phrase

    def __init__(self, phrases: list[str], side: int, device: str, seed: int):
        super().__init__(np.zeros((1, 8, 8, 4), np.uint8), side, device)
        rng = np.random.default_rng(seed)
        drawn = [_layout(phrase, k, self.SIDE, rng) for phrase in phrases for k in range(self.LAYOUTS)]
        self.masks = torch.from_numpy(np.stack([mask for mask, _ in drawn]))[:, None].to(device)
        self.reach = torch.tensor([reach for _, reach in drawn], device=device, dtype=torch.float32)

    def _squeezed(self, n: int) -> tuple[torch.Tensor, ...]:
        """Return the coordinates of pictures stretched by up to a third.

        Returns:
            xs and ys, (n, 2 side, 2 side), and their extents in both directions, (n, 1, 1).
        """
        line = (torch.arange(2 * self.side, device=self.device) + 0.5) / self.side - 1
        stretch = torch.exp(self._u(n, -0.28, 0.28))
        wide, high = stretch.clamp_min(1)[:, None, None], (1 / stretch).clamp_min(1)[:, None, None]
        shape = (n, 2 * self.side, 2 * self.side)
        return (line[None, None] * wide).expand(shape), (line[None, :, None] * high).expand(shape), wide, high

    @torch.no_grad()
    def bare(self, pattern: torch.Tensor, colour: torch.Tensor) -> torch.Tensor:
        """Paint backgrounds alone, (b, 3, side, side) in 0..1."""
        xs, ys, _, _ = self._squeezed(len(pattern))
        return F.avg_pool2d(self._ground(pattern, colour, xs, ys), 2).clamp(0, 1)

    @torch.no_grad()
    def signs(self, phrases: torch.Tensor) -> torch.Tensor:
        """Paint each phrase (b,) in a random layout, size (65-98 %), place, ink and small rotation.

        The background is plain, shaded or glowing.

        Returns:
            Pictures, (b, 3, side, side) in 0..1.
        """
        n = len(phrases)
        pattern, colour = (torch.randint(most, (n,), device=self.device) for most in (3, len(COLOUR_WORDS)))
        which = phrases * self.LAYOUTS + torch.randint(self.LAYOUTS, (n,), device=self.device)
        xs, ys, wide, high = self._squeezed(n)
        ground = self._ground(pattern, colour, xs, ys)
        reach_x, reach_y = self.reach[which].unbind(1)
        most = torch.minimum(wide[:, 0, 0] / reach_x, high[:, 0, 0] / reach_y)
        size = (most * self._u(n, 0.65, 0.98))[:, None, None]
        cx = self._u(n, -1, 1)[:, None, None] * (wide - size * reach_x[:, None, None])
        cy = self._u(n, -1, 1)[:, None, None] * (high - size * reach_y[:, None, None])
        turn = (self._u(n, -0.12, 0.12) * (self._u(n) < 0.3).float())[:, None, None]
        gx = (turn.cos() * (xs - cx) - turn.sin() * (ys - cy)) / size
        gy = (turn.sin() * (xs - cx) + turn.cos() * (ys - cy)) / size
        over = F.grid_sample(self.masks[which].float() / 255, torch.stack([gx, gy], -1), align_corners=False)
        grey = ground.mean((1, 2, 3))
        lighter = (grey < 0.35 + 0.3 * self._u(n))[:, None]
        tint = torch.rand(n, 3, device=self.device)
        room = torch.where(lighter, 1 - grey[:, None], grey[:, None])
        ink = torch.where(lighter, 1 - tint * 0.55 * room, tint * 0.55 * room)[..., None, None]
        return F.avg_pool2d(ground * (1 - over) + ink * over, 2).clamp(0, 1)


def _layout(phrase: str, k: int, side: int, rng: np.random.Generator) -> tuple[np.ndarray, tuple[float, float]]:
    """Draw the phrase centred in 1 to 3 lines.

    A phrase of more than 16 letters has at least two lines. Of six random line breaks, the one with the shortest
    longest line is used.

    Returns:
        The mask, (side, side) uint8, and the text's half width and half height.
    """
    words = phrase.split(" ")
    lines = min(len(words), max(1 + k % 3, 1 + (len(phrase) > 16)))
    breaks = [set(rng.choice(len(words) - 1, lines - 1, replace=False)) if lines > 1 else set() for _ in range(6)]
    texts = ["".join(word + ("\n" if at in cut else " ") for at, word in enumerate(words)).strip() for cut in breaks]
    text = min(texts, key=lambda text: max(map(len, text.split("\n"))))
    align, spacing, stroke = ("left", "center", "right")[k // 3 % 3], int(rng.integers(2, 22)), int(rng.integers(0, 2))
    mask = Image.new("L", (side * 4, side * 4))
    pen, font = ImageDraw.Draw(mask), ImageFont.load_default(64)
    left, top, right, bottom = pen.multiline_textbbox((0, 0), text, font, None, spacing, align, stroke_width=stroke)
    pen.multiline_text((8 - left, 8 - top), text, 255, font, None, spacing, align, stroke_width=stroke)
    width, height = right - left, bottom - top
    scale = (side - 4) / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = mask.crop((8, 8, 8 + round(width), 8 + round(height))).resize(size, Image.Resampling.LANCZOS)
    whole = Image.new("L", (side, side))
    whole.paste(small, ((side - size[0]) // 2, (side - size[1]) // 2))
    return np.asarray(whole), (size[0] / side, size[1] / side)
