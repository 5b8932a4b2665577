"""Corrals: parts of the floor that the boxes shut off from the player.

Take a shut-off part whose boxes can, as things stand, be pushed only into it, and each such push can be
made at once. As long as none of these boxes is pushed, nothing outside can change that. If one of them
has to be pushed sooner or later (it is off target, or an empty target lies inside), then its first push
may as well come first: what is pushed outside in the meantime does not depend on it. So it is enough to
expand the pushes of these boxes, and the number of pushes stays the least.
"""

from __future__ import annotations

from dyna_gym.envs.sokoban.grid import Grid, flood


def corral_boxes(grid: Grid, boxes: int, reach: int) -> int:
    """The boxes that alone need to be pushed next.

    Args:
        grid: The room.
        boxes: Where the boxes are.
        reach: Where the player can go.

    Returns:
        The boxes of the corral with the fewest of them; all boxes where there is no such corral.
    """
    shut = grid.floor & ~boxes & ~reach
    best, fewest = boxes, boxes.bit_count()
    left = shut
    while left:
        inside = flood(left & -left, shut, grid.stride)
        left &= ~inside
        around = _close(grid, boxes, reach, shut, inside)
        if around and around.bit_count() < fewest:
            best, fewest = around, around.bit_count()
    return best


def _close(grid: Grid, boxes: int, reach: int, shut: int, inside: int) -> int:
    """The boxes around a corral, which grows until it fits the definition; 0 where it cannot."""
    stride, floor, alive = grid.stride, grid.floor, grid.alive
    grown = inside
    around = 0
    while True:
        while grown:
            inside |= flood(grown & -grown, shut, stride)
            grown &= ~inside
        around |= boxes & (inside << 1 | inside >> 1 | inside << stride | inside >> stride)
        outside = floor & ~(inside | around)
        goals = alive & ~around
        # Pushes of these boxes that are or may become possible before one of them has been pushed:
        # from outside, and not against each other. `low` is the side of the smaller numbers.
        more = 0
        for way in (1, stride):
            can_stand_low, can_stand_high = outside << way, outside >> way
            up = around & can_stand_low & goals >> way
            down = around & can_stand_high & goals << way
            if up:
                bad = up & ~(inside >> way & reach << way)
                if bad:
                    cells = (bad << way | bad >> way) & ~reach & outside
                    if bad & ~(cells << way | cells >> way):
                        return 0
                    more |= cells
            if down:
                bad = down & ~(inside << way & reach >> way)
                if bad:
                    cells = (bad << way | bad >> way) & ~reach & outside
                    if bad & ~(cells << way | cells >> way):
                        return 0
                    more |= cells
        if not more:
            break
        around |= more & boxes
        grown = more & ~boxes
    if around & ~grid.targets or inside & grid.targets:
        return around
    return 0
