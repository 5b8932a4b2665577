"""Search from both ends: pushes from the start, pulls from the solved positions.

Where the estimate is weak, a search from one end sees nearly every position of the room. From both
ends each has to get only part of the way, and positions that are lost never turn up in the one, nor
positions that cannot be come by in the other.
"""

from __future__ import annotations

from collections.abc import Callable

from dyna_gym.envs.sokoban.bounds import Estimate
from dyna_gym.envs.sokoban.corral import corral_boxes
from dyna_gym.envs.sokoban.grid import FAR, Grid, cells_of, flood
from dyna_gym.envs.sokoban.limits import Limit, Node, Path

Moves = list[tuple[int, int]]
"""Boxes and player after each possible push or pull."""
# What is remembered of a set of boxes where no number of pushes is.
UNKNOWN, PLAYER_DECIDES = -1, -2


def both_ways(grid: Grid, boxes: int, player: int, limit: Limit) -> Path | None:
    """The pushes of a solution with the fewest of them; None where there is none.

    Positions are expanded in layers of equal cost, of whichever side's next layer is smaller, and at
    first only those whose estimated total is within a bound. A path within the bound must be known once
    both depths together exceed it: then the bound is raised, until a path is within it.
    """
    targets = grid.targets
    count = targets.bit_count()
    front = _Side(grid, Estimate(grid.rows, boxes, count), pushes, limit)
    ends = grid.distances(cells_of(boxes), player)
    back = _Side(grid, Estimate(ends, targets, count), pulls, limit)
    front.other, back.other = back, front
    front.add(boxes, player)
    free = left = grid.floor & ~targets
    while left:
        region = flood(left & -left, free, grid.stride)
        left &= ~region
        back.add(targets, region.bit_length() - 1)
    # Both ends first: a side that runs out of positions has then met the other's end if it can.
    for side in (front, back):
        side.expand(0, FAR)
    bound = 0
    while True:
        if min(front.best, back.best) <= bound or not (front.open and back.open):
            break
        if front.depth + back.depth > bound:
            bound = min(front.next_total(bound), back.next_total(bound))
            # How far each side goes is settled anew: what it has expanded before costs nothing now.
            front.depth = back.depth = 0
        else:
            side = front if front.waiting(bound) <= back.waiting(bound) else back
            side.expand(side.depth, bound)
            side.depth += 1
    side = front if front.best <= back.best else back
    if side.best >= FAR:
        return None
    return _joined(front, back, side)


class _Side:
    """One of the two searches."""

    other: _Side

    def __init__(
        self,
        grid: Grid,
        estimate: Estimate,
        moves: Callable[[Grid, int, int], Moves],
        limit: Limit,
    ) -> None:
        self.grid, self.estimate, self.moves, self.limit = grid, estimate, moves, limit
        # All positions of lower cost than this have been expanded, as far as within the bound.
        self.depth = 0
        # By cost, then by estimated total.
        self.open: dict[int, dict[int, list[Node]]] = {}
        self.nodes: list[Node] = []
        # For a set of boxes, the regions expanded with the numbers of their nodes.
        self.closed: dict[int, list[tuple[int, int]]] = {}
        self.rest: dict[int, int] = {}
        self.best = FAR
        # Where the best path joins the two searches: the number of a node of each side, and the
        # position between them that this side came to from its node and that is the other's node.
        self.joint = (-1, -1, 0, 0)

    def add(self, boxes: int, player: int) -> None:
        """Put a position at this end on the list of those to expand, unless it is a deadlock."""
        rest = self._remains(boxes, player)
        if rest < FAR:
            self.open.setdefault(0, {}).setdefault(rest, []).append((boxes, player, 0, -1))

    def next_total(self, bound: int) -> int:
        """The least estimated total above the bound of a position that waits."""
        return min(
            (total for layer in self.open.values() for total in layer if total > bound),
            default=FAR,
        )

    def waiting(self, bound: int) -> int:
        """The size of the next layer."""
        layer = self.open.get(self.depth, {})
        return sum(len(nodes) for total, nodes in layer.items() if total <= bound)

    def expand(self, cost: int, bound: int) -> None:
        """Expand all positions of a cost whose estimated total is within the bound."""
        layer = self.open.get(cost)
        if layer is None:
            return
        for total in [total for total in layer if total <= bound]:
            for node in layer.pop(total):
                self._expand(node)
        if not layer:
            del self.open[cost]

    def _expand(self, node: Node) -> None:
        boxes, player, cost, _ = node
        closed, met = self.closed, self.other.closed
        regions = closed.setdefault(boxes, [])
        for region, _ in regions:
            if region >> player & 1:
                return
        number = len(self.nodes)
        self.nodes.append(node)
        grid = self.grid
        reach = flood(1 << player, grid.floor & ~boxes, grid.stride)
        regions.append((reach, number))
        if boxes in met and self._join(node):
            # The other side knows the best way on from here.
            return
        self.limit.count()
        cost += 1
        layer = self.open.get(cost) or {}
        known = self.rest
        for after, place in self.moves(grid, boxes, reach):
            rest = known.get(after, UNKNOWN)
            if rest >= FAR:
                continue
            if after in met:
                self._join((after, place, cost, number))
            if after in closed:
                for region, _ in closed[after]:
                    if region >> place & 1:
                        break
                else:
                    region = 0
                if region:
                    continue
            if rest < 0:
                rest = self._remains(after, place, rest)
                if rest >= FAR:
                    continue
            total = cost + rest
            if total in layer:
                layer[total].append((after, place, cost, number))
            else:
                layer[total] = [(after, place, cost, number)]
        if layer:
            self.open[cost] = layer

    def _remains(self, boxes: int, player: int, known: int = UNKNOWN) -> int:
        """What remains at least; `FAR` or more for a deadlock. Remembered where boxes decide alone."""
        if (
            known == UNKNOWN
            and self.moves is pushes
            and self.grid.frozen(boxes) & ~self.grid.targets
        ):
            rest = self.rest[boxes] = FAR
            return rest
        rest = self.estimate(boxes, player)
        self.rest[boxes] = PLAYER_DECIDES if boxes & self.estimate.parting else rest
        return rest

    def _join(self, node: Node) -> bool:
        """Whether the other side has expanded this position; the best path so made is noted."""
        boxes, player, cost, before = node
        for region, there in self.other.closed[boxes]:
            if region >> player & 1:
                whole = cost + self.other.nodes[there][2]
                if whole < self.best:
                    self.best, self.joint = whole, (before, there, boxes, player)
                return True
        return False


def pushes(grid: Grid, boxes: int, reach: int) -> Moves:
    """All pushes that are worth a look, as boxes and player after them."""
    stride = grid.stride
    free = grid.floor & ~boxes
    movable = boxes if free == reach else corral_boxes(grid, boxes, reach)
    free &= grid.alive
    found = []
    for way, pushable in (
        (1, movable & reach << 1 & free >> 1),
        (-1, movable & reach >> 1 & free << 1),
        (stride, movable & reach << stride & free >> stride),
        (-stride, movable & reach >> stride & free << stride),
    ):
        while pushable:
            box = pushable & -pushable
            pushable ^= box
            after = boxes ^ box ^ (box << way if way > 0 else box >> -way)
            found.append((after, box.bit_length() - 1))
    return found


def pulls(grid: Grid, boxes: int, reach: int) -> Moves:
    """All pulls: a push backwards, which takes the player away from the box and the box along."""
    stride = grid.stride
    free = grid.floor & ~boxes
    found = []
    for way, pullable in (
        (1, boxes & reach >> 1 & free >> 2),
        (-1, boxes & reach << 1 & free << 2),
        (stride, boxes & reach >> stride & free >> 2 * stride),
        (-stride, boxes & reach << stride & free << 2 * stride),
    ):
        while pullable:
            box = pullable & -pullable
            pullable ^= box
            after = boxes ^ box ^ (box << way if way > 0 else box >> -way)
            found.append((after, box.bit_length() - 1 + 2 * way))
    return found


def _joined(front: _Side, back: _Side, side: _Side) -> Path:
    """The pushes from the start to the joint, and on to the solved position."""
    number, there, boxes, player = side.joint
    if side is front:
        path = [(boxes, player)]
    else:
        path, number, there = [], there, number
    while front.nodes[number][3] >= 0:
        boxes_before, player_before, _, before = front.nodes[number]
        path.append((boxes_before, player_before))
        number = before
    path.reverse()
    # From here on, a pull leads from the later position to the earlier one. If the joint was made
    # by the back, its node is the position after the first of these pushes.
    now = boxes
    if side is front:
        there = back.nodes[there][3]
    while there >= 0:
        after = back.nodes[there][0]
        path.append((after, (now & ~after).bit_length() - 1))
        now, there = after, back.nodes[there][3]
    return path
