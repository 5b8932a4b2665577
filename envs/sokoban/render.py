"""Pictures of boards; every tile is drawn by code."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from dyna_gym.envs.sokoban.room import (
    BOX,
    BOX_ON_TARGET,
    GLYPHS,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    WALL,
    Room,
    State,
    render_board,
)
from dyna_gym.errors import ConfigError

TILE = 24
SMALLEST_TILE = 8

MORTAR, BRICK, BRICK_LIGHT = (58, 46, 44), (134, 84, 66), (156, 102, 80)
GROUND, GROUND_LINE = (232, 226, 212), (218, 210, 194)
RED = (200, 52, 60)
WOOD, WOOD_DARK, WOOD_LIGHT = (206, 152, 82), (132, 88, 38), (226, 180, 116)
GREEN, GREEN_DARK, GREEN_LIGHT = (96, 168, 92), (44, 98, 50), (140, 202, 130)
SKIN, SHIRT, HAIR, DARK = (246, 208, 172), (48, 98, 180), (72, 48, 36), (34, 34, 40)


def render_rgb(room: Room, state: State, tile: int = TILE) -> np.ndarray:
    """The board as an RGB picture.

    Args:
        room: The room.
        state: Where player and boxes are.
        tile: Side of a cell in pixels.

    Returns:
        A new uint8 array [height * tile, width * tile, 3].
    """
    if isinstance(tile, bool) or not isinstance(tile, (int, np.integer)) or tile < SMALLEST_TILE:
        raise ConfigError(
            f"tile: got {tile!r}, expected a whole number of at least {SMALLEST_TILE} pixels"
        )
    tiles = _tiles(int(tile))
    rows = render_board(room, state).split("\n")
    return np.concatenate([np.concatenate([tiles[cell] for cell in row], axis=1) for row in rows])


@lru_cache(maxsize=16)
def _tiles(size: int) -> dict[str, np.ndarray]:
    """A picture for each glyph."""
    tiles = {}
    for glyph in GLYPHS:
        picture = Image.new("RGB", (size, size), GROUND)
        pen = ImageDraw.Draw(picture)
        if glyph == WALL:
            _wall(pen, size)
        else:
            pen.rectangle((0, 0, size - 1, size - 1), outline=GROUND_LINE)
        if glyph in (TARGET, PLAYER_ON_TARGET):
            # Wide enough under the player to be seen around them.
            _target(pen, size, size // 5 if glyph == TARGET else size // 16)
        if glyph in (PLAYER, PLAYER_ON_TARGET):
            _player(pen, size)
        if glyph == BOX:
            _box(pen, size, WOOD, WOOD_DARK, WOOD_LIGHT)
        if glyph == BOX_ON_TARGET:
            _box(pen, size, GREEN, GREEN_DARK, GREEN_LIGHT)
        tiles[glyph] = np.asarray(picture)
    return tiles


def _wall(pen: ImageDraw.ImageDraw, size: int) -> None:
    """Three courses of bricks, every other one shifted by half a brick; tiles join without a seam."""
    pen.rectangle((0, 0, size, size), fill=MORTAR)
    joint = max(1, size // 16)
    edges = [size * course // 3 for course in range(4)]
    for course in range(3):
        top, bottom = edges[course], edges[course + 1] - joint - 1
        for left in (0, size // 2) if course % 2 == 0 else (-size // 4, size // 4, 3 * size // 4):
            right = left + size // 2 - joint - 1
            pen.rectangle((left, top, right, bottom), fill=BRICK)
            pen.line((left, top, right, top), fill=BRICK_LIGHT, width=joint)


def _target(pen: ImageDraw.ImageDraw, size: int, ring: int) -> None:
    """A ring with a dot."""
    line = max(1, size // 10)
    dot = size * 2 // 5
    pen.ellipse((ring, ring, size - 1 - ring, size - 1 - ring), outline=RED, width=line)
    pen.ellipse((dot, dot, size - 1 - dot, size - 1 - dot), fill=RED)


Colour = tuple[int, int, int]


def _box(pen: ImageDraw.ImageDraw, size: int, wood: Colour, dark: Colour, light: Colour) -> None:
    """A crate: a frame with two crossed planks."""
    edge, line = max(1, size // 12), max(1, size // 12)
    low, high = edge, size - 1 - edge
    pen.rectangle((low, low, high, high), fill=light, outline=dark, width=line)
    inner = line * 2
    pen.line((low + inner, low + inner, high - inner, high - inner), fill=wood, width=line * 3)
    pen.line((low + inner, high - inner, high - inner, low + inner), fill=wood, width=line * 3)
    pen.line((low + inner, low + inner, high - inner, high - inner), fill=dark, width=1)
    pen.line((low + inner, high - inner, high - inner, low + inner), fill=dark, width=1)
    frame = (low + line, low + line, high - line, high - line)
    pen.rectangle(frame, outline=wood, width=line)
    pen.rectangle((low, low, high, high), outline=dark, width=line)


def _player(pen: ImageDraw.ImageDraw, size: int) -> None:
    """A figure from the front: hair, face, shirt and feet."""

    def place(left: float, top: float, right: float, bottom: float) -> tuple[int, int, int, int]:
        side = size - 1
        return round(left * side), round(top * side), round(right * side), round(bottom * side)

    pen.rectangle(place(0.34, 0.78, 0.46, 0.94), fill=DARK)
    pen.rectangle(place(0.54, 0.78, 0.66, 0.94), fill=DARK)
    pen.ellipse(place(0.2, 0.46, 0.8, 0.9), fill=SHIRT)
    pen.ellipse(place(0.28, 0.06, 0.72, 0.52), fill=HAIR)
    pen.ellipse(place(0.32, 0.2, 0.68, 0.54), fill=SKIN)
    for left in (0.4, 0.54):
        pen.rectangle(place(left, 0.33, left + 0.05, 0.4), fill=DARK)
