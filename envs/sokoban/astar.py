"""The searches behind `solve`."""

from __future__ import annotations

from dyna_gym.envs.sokoban.bounds import Estimate
from dyna_gym.envs.sokoban.grid import FAR, Grid, flood
from dyna_gym.envs.sokoban.limits import Limit, Node, Path
from dyna_gym.envs.sokoban.meet import both_ways, pushes

ONE_WAY_EXPANSIONS = 3_000
"""After so many, the search for fewest pushes is taken up from both ends."""


def fewest_pushes(grid: Grid, boxes: int, player: int, limit: Limit) -> Path | None:
    """The pushes of a solution with the fewest of them; None where there is none.

    The bucket of the least estimated total is worked off last in, first out: where the estimate is
    right, that goes straight for the solution.
    """
    stride, floor, targets = grid.stride, grid.floor, grid.targets
    estimate = Estimate(grid.rows, boxes, targets.bit_count())
    parting, frozen = estimate.parting, grid.frozen
    # For a set of boxes: what remains (FAR: they are deadlocked), or -1 where the player decides.
    remains: dict[int, int] = {boxes: -1}
    # For a set of boxes: the regions from which it was expanded.
    closed: dict[int, list[int]] = {}
    first = FAR if frozen(boxes) & ~targets else estimate(boxes, player)
    if first >= FAR:
        return None
    start = (boxes, player)
    buckets: dict[int, list[Node]] = {first: [(boxes, player, 0, -1)]}
    nodes: list[Node] = []
    while buckets:
        total = min(buckets)
        bucket = buckets[total]
        while bucket:
            node = bucket.pop()
            boxes, player, cost, _ = node
            regions = closed.setdefault(boxes, [])
            # A list: any() over a generator takes three times as long here.
            if any([region >> player & 1 for region in regions]):  # noqa: C419
                continue
            number = len(nodes)
            nodes.append(node)
            if boxes == targets:
                return _path(nodes)
            if number == ONE_WAY_EXPANSIONS:
                return both_ways(grid, *start, limit)
            limit.count()
            reach = flood(1 << player, floor & ~boxes, stride)
            regions.append(reach)
            cost += 1
            for after, place in pushes(grid, boxes, reach):
                rest = remains.get(after)
                if rest is None:
                    if frozen(after) & ~targets:
                        rest = remains[after] = FAR
                    elif after & parting:
                        rest = remains[after] = -1
                    else:
                        rest = remains[after] = estimate(after, place)
                if rest < 0:
                    rest = estimate(after, place)
                if rest >= FAR:
                    continue
                if cost + rest in buckets:
                    buckets[cost + rest].append((after, place, cost, number))
                else:
                    buckets[cost + rest] = [(after, place, cost, number)]
        del buckets[total]
    return None


def _path(nodes: list[Node]) -> Path:
    """Boxes and player after each push, from the expanded nodes, the last of which is solved."""
    path = []
    node = nodes[-1]
    while node[3] >= 0:
        path.append((node[0], node[1]))
        node = nodes[node[3]]
    return path[::-1]


def fewest_moves(grid: Grid, boxes: int, player: int, limit: Limit) -> Path | None:
    """The pushes of a solution with the fewest moves; None where there is none.

    Here the player's exact cell counts, and a push costs the way to it as well. Pruning by corrals, which
    keeps only the number of pushes least, is not used.
    """
    stride, floor, alive, targets = grid.stride, grid.floor, grid.alive, grid.targets
    estimate = Estimate(grid.rows, boxes, targets.bit_count())
    frozen = grid.frozen
    dead: dict[int, bool] = {boxes: bool(frozen(boxes) & ~targets)}
    first = estimate(boxes, player)
    if first >= FAR or dead[boxes]:
        return None
    best: dict[tuple[int, int], int] = {(boxes, player): 0}
    buckets: dict[int, list[Node]] = {first: [(boxes, player, 0, -1)]}
    nodes: list[Node] = []
    while buckets:
        total = min(buckets)
        bucket = buckets[total]
        while bucket:
            node = bucket.pop()
            boxes, player, cost, _ = node
            if cost > best[boxes, player]:
                continue
            number = len(nodes)
            nodes.append(node)
            if boxes == targets:
                return _path(nodes)
            limit.count()
            free = floor & ~boxes
            room_left = alive & ~boxes
            # Where the player must stand to push right, left, down and up.
            stands = (
                (1, boxes >> 1 & room_left >> 2 & free),
                (-1, boxes << 1 & room_left << 2 & free),
                (stride, boxes >> stride & room_left >> 2 * stride & free),
                (-stride, boxes << stride & room_left << 2 * stride & free),
            )
            reach = edge = 1 << player
            walked = cost
            while edge:
                walked += 1
                for way, stand in stands:
                    ready = stand & edge
                    while ready:
                        place = (ready & -ready).bit_length() - 1 + way
                        ready &= ready - 1
                        after = boxes ^ 1 << place ^ 1 << place + way
                        if after not in dead:
                            dead[after] = bool(frozen(after) & ~targets)
                        if dead[after]:
                            continue
                        key = (after, place)
                        if best.get(key, FAR) <= walked:
                            continue
                        best[key] = walked
                        rest = estimate(after, place)
                        if rest < FAR:
                            buckets.setdefault(walked + rest, []).append(
                                (after, place, walked, number)
                            )
                edge = (edge << 1 | edge >> 1 | edge << stride | edge >> stride) & free & ~reach
                reach |= edge
        del buckets[total]
    return None
