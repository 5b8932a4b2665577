"""Exact distances of all states of a small room, by playing backwards from every solved state."""

from __future__ import annotations

from dyna_gym.envs.sokoban.room import OPPOSITE, Room, State
from dyna_gym.errors import DynaGymError


class SolverLimit(DynaGymError, RuntimeError):
    """A search was stopped by its limit before it had an answer."""


def distances(room: Room, max_states: int = 2_000_000) -> dict[State, int]:
    r"""The number of moves to the nearest solved state, for every state that can be solved.

    A state that is missing cannot be solved. States in which the player could never have come there by
    play are in it too. One box in a 6x6 room takes about a millisecond; the number of states grows with
    the power of the boxes, so use this with one or two.

    Args:
        room: A room; it has as many boxes as targets.
        max_states: Give up beyond this number.

    Raises:
        SolverLimit: There are more than ``max_states`` states.

    Example:
        >>> from dyna_gym.envs.sokoban.room import parse_board
        >>> room, state = parse_board("######\n#P_XO#\n######")
        >>> distances(room)[state]
        2
    """
    # Plain tuples are equal to States and hash alike, and are made faster.
    targets, walls = room.targets, room.walls
    found: dict[tuple[int, frozenset[int]], int] = {
        (cell, targets): 0
        for cell in range(room.height * room.width)
        if cell not in walls and cell not in targets
    }
    # Equal sets of boxes share one object: comparing them is then a comparison of addresses.
    shared: dict[frozenset[int], frozenset[int]] = {targets: targets}
    ways = [(room.ahead[way], room.ahead[OPPOSITE[way]]) for way in range(4)]
    frontier = list(found)
    moves = 0
    while frontier:
        moves += 1
        reached = []
        for cell, boxes in frontier:
            for ahead, back in ways:
                before = back[cell]
                if before < 0 or before in boxes:
                    continue
                # The player came from `before`, without a push ...
                came = (before, boxes)
                if came not in found:
                    found[came] = moves
                    reached.append(came)
                # ... or pushed the box that is now in front of it.
                pushed = ahead[cell]
                if pushed in boxes:
                    pulled = boxes - {pushed} | {cell}
                    came = (before, shared.setdefault(pulled, pulled))
                    if came not in found:
                        found[came] = moves
                        reached.append(came)
        if len(found) > max_states:
            raise SolverLimit(
                f"distances: got more than {max_states:,} states in a {room.height}x{room.width} room "
                f"with {len(targets)} boxes; use solve() on single states, or raise max_states"
            )
        frontier = reached
    make = State._make
    return {make(state): moves for state, moves in found.items()}
