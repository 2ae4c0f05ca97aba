"""The algorithms of `whole_graph` in rounds over blocks, for graphs that exceed one process.

They give what `whole_graph` gives. Values of nodes reach the blocks that have them as ghosts along
the edges; what has to go against the edges is mail from the block of the target to the owner of the
source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.computing.algorithms import (
    ROW_PLACES,
    Columns,
    EdgeUse,
    Payload,
    Received,
    Report,
    Round,
    joined,
)
from omnigraph.computing.blocks import Block, Counts, Floats, Keys, Places, owner_of, ranges
from omnigraph.model.records import dataclass

Flags: TypeAlias = npt.NDArray[np.bool_]
Measure = Literal["jaccard", "cosine", "overlap"]
"""Common neighbours by all neighbours, by the mean of both numbers of them, by the smaller one."""

BITS = 64
"""Searches in one number, a bit each."""
SEARCH_WORDS = 16
"""Such numbers for each node: so many times 64 searches go on at a time."""
PATH_CELLS = 1 << 22
"""Pairs of a node of a block and a node that paths begin at, which are kept at a time."""
PATH_STARTS = 64
"""Most nodes that paths begin at at a time."""
WEDGES_AT_ONCE = 1 << 22
"""Ways over a common neighbour that a block of `SimilarityRounds` finds in a round, on average."""

_LARGEST = np.uint64(2**64 - 1)


def sampled(keys: Keys, samples: int, seed: int) -> Counts:
    """The places of nodes to begin at, ascending: all, or ``samples`` of them by their keys.

    The choice depends on the graph and the seed alone, not on the order of the nodes, so a choice
    among the chosen ones of each block is the choice among all.
    """
    if samples >= len(keys):
        return np.arange(len(keys))
    # A bijection, so that no two nodes get the same number.
    mixed = keys ^ np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.sort(np.argpartition(mixed, samples)[:samples])


def similarity_of(measure: Measure, common: Counts, ours: Counts, theirs: Counts) -> Floats:
    """The similarity of sets with so many common members, and so many each."""
    if measure == "jaccard":
        against: npt.NDArray[Any] = ours + theirs - common
    elif measure == "cosine":
        against = np.sqrt(ours.astype(np.float64) * theirs)
    else:
        against = np.minimum(ours, theirs)
    values: Floats = common / against
    return values


def _owned(block: Block, keys: Keys) -> tuple[Counts, Counts]:
    """Which of some nodes a block owns, and where."""
    if not block.nodes:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(block.keys, keys), block.nodes - 1)
    mine = np.flatnonzero(block.keys[at] == keys)
    return mine, at[mine]


def _ghost_ranges(block: Block) -> Iterator[tuple[int, int, int]]:
    """For each block that owns ghosts of this one: its number, and its first and last ghost."""
    owners = owner_of(block.ghosts, block.blocks)
    bounds = np.searchsorted(owners, np.arange(block.blocks + 1)).tolist()
    for number, (first, last) in enumerate(pairwise(bounds)):
        if last > first:
            yield number, first, last


# --- strong components ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Colors:
    phase: Literal["trim", "forward", "backward"]
    component: Keys
    active: Flags
    """The nodes whose component is not yet known."""
    colors: Keys
    marked: Flags
    """The nodes that reach the node whose key is their color."""
    around: Keys
    """The colors of the ghosts while marks go backward."""
    has_asked: bool = False
    """Whether mail tells which nodes have edges that lead to active ones."""


@dataclass(frozen=True, slots=True)
class StrongComponentRounds:
    """Strong components by colors.

    Nodes without an edge from or to an active node are trimmed: each is a component. Then every
    node takes the smallest key among those it is reached from as its color. The nodes of a color
    that reach the node with that key are its component; marks go backward from it to find them.
    They are no longer active, and the next turn begins. A component has the smallest key of its
    members.
    """

    name: ClassVar[str] = "strongly_connected"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = False
    iterations: ClassVar[int | None] = None

    def first(self, block: Block, nodes: int) -> tuple[_Colors, Report]:
        """All nodes are active."""
        state = _Colors(
            "trim",
            block.keys.copy(),
            np.ones(block.nodes, np.bool_),
            block.keys,
            np.zeros(block.nodes, np.bool_),
            np.zeros(0, np.uint64),
        )
        return state, _still(state, 1)

    def sent(self, block: Block, state: _Colors, own: Places | slice) -> Payload:
        """Which nodes are active, or the colors of those that are."""
        if state.phase == "trim":
            return state.active[own]
        if state.phase == "forward":
            return np.where(state.active[own], state.colors[own], _LARGEST)
        return None

    def step(self, block: Block, state: _Colors, received: Received) -> Round:
        """One round of the phase, or the first one of the next if nothing changed anywhere."""
        is_over = received.total[0] == 0
        match state.phase:
            case "trim":
                active = joined(received.values)
                if not is_over:
                    return self._trimmed(block, state, active, received.mail)
                begun = replace(state, phase="forward", colors=block.keys)
                return self._colored(block, begun, np.where(active, block.ghosts, _LARGEST))
            case "forward":
                around = joined(received.values)
                if not is_over:
                    return self._colored(block, state, around)
                roots = state.active & (state.colors == block.keys)
                begun = replace(state, phase="backward", marked=roots, around=around)
                return self._marked(block, begun, roots)
            case "backward":
                if not is_over:
                    fresh = np.zeros(block.nodes, np.bool_)
                    for number, chosen in received.mail:
                        fresh[block.sends[number][chosen]] = True
                    fresh &= state.active & ~state.marked
                    after = replace(state, marked=state.marked | fresh)
                    return self._marked(block, after, fresh)
                component = np.where(state.marked, state.colors, state.component)
                left = state.active & ~state.marked
                after = replace(
                    state, phase="trim", component=component, active=left, has_asked=False
                )
                return Round(after, _still(after, 1))

    def _trimmed(
        self, block: Block, state: _Colors, around: Flags, mail: Sequence[Payload]
    ) -> Round:
        left = state.active & block.reduced(np.bitwise_or, around[block.sources], False)
        if state.has_asked:
            leads_on = np.zeros(block.nodes, np.bool_)
            for number, chosen in mail:
                leads_on[block.sends[number][chosen]] = True
            left &= leads_on
        changed = int((left != state.active).sum()) + (not state.has_asked)
        after = replace(state, active=left, has_asked=True)
        return Round(after, _still(after, changed), _to_sources(block, left[block.targets()]))

    def _colored(self, block: Block, state: _Colors, around: Keys) -> Round:
        least = block.reduced(np.minimum, around[block.sources], _LARGEST)
        colors = np.where(state.active, np.minimum(state.colors, least), state.colors)
        changed = int((colors != state.colors).sum())
        after = replace(state, colors=colors)
        return Round(after, _still(after, changed))

    def _marked(self, block: Block, state: _Colors, fresh: Flags) -> Round:
        targets = block.targets()
        same = state.around[block.sources] == state.colors[targets]
        mail = _to_sources(block, fresh[targets] & same)
        return Round(state, _still(state, int(fresh.sum())), mail)

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether no node is active."""
        return bool(total[1] == 0)

    def columns(self, block: Block, state: _Colors) -> Columns:
        """`component`, as the key of a node."""
        return {"component": state.component}


def _still(state: _Colors, changed: int) -> Report:
    return np.array([float(changed), float(state.active.sum())])


def _to_sources(block: Block, chosen: Flags) -> Mapping[int, Payload]:
    """Mail for the owners of the nodes that chosen edges come from: which of those they send."""
    told = np.zeros(len(block.ghosts), np.bool_)
    told[block.sources[chosen]] = True
    return {
        owner: (block.number, np.flatnonzero(told[first:last]))
        for owner, first, last in _ghost_ranges(block)
    }


# --- closeness ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Searches:
    group: int
    steps: int
    front: Keys
    """Bits of the searches that reached each node in the last step."""
    seen: Keys
    sums: Floats
    reached: Floats


@dataclass(frozen=True, slots=True)
class ClosenessRounds:
    """Closeness by searches from many nodes at once, a bit each."""

    name: ClassVar[str] = "closeness"
    edge_use: ClassVar[EdgeUse] = "pairs"
    is_weighted: ClassVar[bool] = False
    iterations: ClassVar[int | None] = None
    starts: Keys
    """The keys of the nodes that distances are measured from."""

    def first(self, block: Block, nodes: int) -> tuple[_Searches, Report]:
        """The searches of the first group are where they begin."""
        empty = np.zeros(block.nodes)
        return self._begun(block, 0, empty, empty)

    def _begun(
        self, block: Block, group: int, sums: Floats, reached: Floats
    ) -> tuple[_Searches, Report]:
        keys = self.starts[self._range(group)]
        front = np.zeros((block.nodes, -(-len(keys) // BITS)), np.uint64)
        mine, places = _owned(block, keys)
        front[places, mine // BITS] = np.uint64(1) << (mine % BITS).astype(np.uint64)
        state = _Searches(group, 0, front, front, sums, reached)
        return state, self._report(state, 1)

    @staticmethod
    def _range(group: int) -> slice:
        size = SEARCH_WORDS * BITS
        return slice(group * size, (group + 1) * size)

    def _report(self, state: _Searches, new: int) -> Report:
        later = len(self.starts) > self._range(state.group).stop
        return np.array([float(new), float(later)])

    def sent(self, block: Block, state: _Searches, own: Places | slice) -> Keys:
        """The searches that reached nodes in the last step."""
        return state.front[own]

    def step(self, block: Block, state: _Searches, received: Received) -> Round:
        """One step of all searches, or the begin of the next group."""
        if received.total[0] == 0:
            return Round(*self._begun(block, state.group + 1, state.sums, state.reached))
        around = joined(received.values)
        after = np.empty_like(state.front)
        for word in range(after.shape[1]):
            arrived = around[:, word][block.sources]
            after[:, word] = block.reduced(np.bitwise_or, arrived, np.uint64(0))
        after &= ~state.seen
        new = np.bitwise_count(after).sum(axis=1, dtype=np.int64)
        steps = state.steps + 1
        made = _Searches(
            state.group,
            steps,
            after,
            state.seen | after,
            state.sums + steps * new,
            state.reached + new,
        )
        return Round(made, self._report(made, int(new.sum())))

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether no search goes on, and none is left."""
        return bool(total[0] == 0 and total[1] == 0)

    def columns(self, block: Block, state: _Searches) -> Columns:
        """`closeness`."""
        is_start = np.isin(block.keys, self.starts)
        return {"closeness": closeness_of(state.sums, state.reached, is_start, len(self.starts))}


def closeness_of(sums: Floats, reached: Floats, is_start: Flags, starts: int) -> Floats:
    """The share of the starts that reach each node, by their mean distance.

    A node that is a start reaches itself, and is no other node.
    """
    others = starts - is_start
    share = np.divide(reached, others, out=np.zeros(len(sums)), where=others > 0)
    near = np.divide(reached, sums, out=np.zeros(len(sums)), where=sums > 0)
    values: Floats = share * near
    return values


# --- betweenness ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Paths:
    """What a block knows of paths; rounds change the arrays, of which every task has a copy."""

    group: int
    nodes: int
    is_back: bool
    """Whether shares of paths are counted, from the furthest nodes back."""
    depth: int
    """The level that was found last, or whose nodes give their shares next."""
    levels: npt.NDArray[np.int32]
    """How many edges lead to each node from each start; -1 where no path is known."""
    paths: Floats
    """How many shortest paths do, as logarithms to base 2: there may be more than floats count."""
    credit: Floats
    """The shares of paths to other nodes that lead through each node."""
    scores: Floats


@dataclass(frozen=True, slots=True)
class BetweennessRounds:
    """Betweenness by Brandes: paths are counted level by level, and their shares on the way back.

    All starts of a group take the same rounds.
    """

    name: ClassVar[str] = "betweenness"
    edge_use: ClassVar[EdgeUse] = "pairs"
    is_weighted: ClassVar[bool] = False
    iterations: ClassVar[int | None] = None
    starts: Keys
    """The keys of the nodes that paths begin at."""

    def first(self, block: Block, nodes: int) -> tuple[_Paths, Report]:
        """The paths of the first group are where they begin."""
        return self._begun(block, 0, nodes, np.zeros(block.nodes))

    def _begun(self, block: Block, group: int, nodes: int, scores: Floats) -> tuple[_Paths, Report]:
        size = max(1, min(PATH_STARTS, PATH_CELLS * block.blocks // max(nodes, 1)))
        keys = self.starts[group * size : (group + 1) * size]
        levels = np.full((block.nodes, len(keys)), -1, np.int32)
        paths = np.full((block.nodes, len(keys)), -np.inf)
        mine, places = _owned(block, keys)
        levels[places, mine] = 0
        paths[places, mine] = 0.0
        credit = np.zeros((block.nodes, len(keys)))
        left = len(self.starts) > group * size
        state = _Paths(group, nodes, False, 0, levels, paths, credit, scores)
        return state, np.array([1.0, float(left)])

    def sent(self, block: Block, state: _Paths, own: Places | slice) -> Floats:
        """The paths to nodes of the level that edges to the next one begin at."""
        level = state.depth - 1 if state.is_back else state.depth
        found: Floats = np.where(state.levels[own] == level, state.paths[own], -np.inf)
        return found

    def step(self, block: Block, state: _Paths, received: Received) -> Round:
        """One level further, or one back."""
        going_on = np.array([1.0, 1.0])
        if not state.is_back:
            if received.total[0] > 0:
                return self._further(block, state, joined(received.values))
            # The last step found no node: the level before it is the furthest one.
            return Round(replace(state, is_back=True, depth=state.depth - 1), going_on)
        for number, shares in received.mail:
            np.add.at(state.credit, block.sends[number], shares)
        if state.depth >= 2:
            mail = self._shares(block, state, joined(received.values))
            return Round(replace(state, depth=state.depth - 1), going_on, mail)
        scores = state.scores + state.credit.sum(axis=1)
        return Round(*self._begun(block, state.group + 1, state.nodes, scores))

    def _further(self, block: Block, state: _Paths, around: Floats) -> Round:
        targets, depth, new = block.targets(), state.depth + 1, 0
        for column in range(around.shape[1]):
            known = around[:, column]
            edges = np.flatnonzero((known > -np.inf)[block.sources])
            edges = edges[state.levels[targets[edges], column] < 0]
            if not len(edges):
                continue
            # Edges are in the order of their targets.
            ends, over = targets[edges], known[block.sources[edges]]
            begins = np.flatnonzero(np.append(True, ends[1:] != ends[:-1]))
            most = np.maximum.reduceat(over, begins)
            counts = np.diff(np.append(begins, len(edges)))
            added = np.add.reduceat(np.exp2(over - np.repeat(most, counts)), begins)
            reached = ends[begins]
            state.paths[reached, column] = most + np.log2(added)
            state.levels[reached, column] = depth
            new += len(reached)
        return Round(replace(state, depth=depth), np.array([float(new), 1.0]))

    def _shares(self, block: Block, state: _Paths, around: Floats) -> dict[int, Payload]:
        """What nodes of this level give to those of the level before, by the block of those."""
        targets = block.targets()
        given = np.zeros(around.shape)
        for column in range(around.shape[1]):
            known = around[:, column]
            edges = np.flatnonzero((known > -np.inf)[block.sources])
            edges = edges[state.levels[targets[edges], column] == state.depth]
            ends, begins = targets[edges], block.sources[edges]
            share = np.exp2(known[begins] - state.paths[ends, column])
            share *= 1.0 + state.credit[ends, column]
            given[:, column] = np.bincount(begins, share, minlength=len(around))
        return {
            owner: (block.number, given[first:last])
            for owner, first, last in _ghost_ranges(block)
            if given[first:last].any()
        }

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether no start is left."""
        return bool(total[1] == 0)

    def columns(self, block: Block, state: _Paths) -> Columns:
        """`betweenness`."""
        return {"betweenness": betweenness_of(state.scores, state.nodes, len(self.starts))}


def betweenness_of(shares: Floats, nodes: int, starts: int) -> Floats:
    """The share of all paths between other nodes, from shares of those from some starts."""
    if nodes < 3:
        return np.zeros(len(shares))
    return shares * (nodes / starts / ((nodes - 1) * (nodes - 2)))


# --- similarity -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Similar:
    part: int
    parts: int
    around: Counts
    """How many neighbours each ghost has."""
    rows: tuple[tuple[Counts, Keys, Floats], ...] = ()
    """The node, the other one and the similarity, of the parts that are done."""


@dataclass(frozen=True, slots=True)
class SimilarityRounds:
    """Similarity by the nodes in the middle.

    The block of a node finds all pairs that have it as a common neighbour, and tells the owner of
    the first of both, which adds up what blocks tell it. Nodes take turns, so that what is told in
    a round stays bounded.
    """

    name: ClassVar[str] = "similarity"
    edge_use: ClassVar[EdgeUse] = "pairs"
    is_weighted: ClassVar[bool] = False
    iterations: ClassVar[int | None] = None
    per_node: int
    at_least: float
    measure: Measure

    def first(self, block: Block, nodes: int) -> tuple[_Similar, Report]:
        """The numbers of neighbours go out, and how many pairs there are."""
        pairs = float((block.in_degrees.astype(np.float64) ** 2).sum())
        return _Similar(0, 0, np.zeros(0, np.int64)), np.array([1.0, pairs])

    def sent(self, block: Block, state: _Similar, own: Places | slice) -> Payload:
        """How many neighbours nodes have, before the first round."""
        return None if state.parts else block.out_weights[own].astype(np.int64)

    def step(self, block: Block, state: _Similar, received: Received) -> Round:
        """Add up what was told of the part before, and tell of the next one."""
        if not state.parts:
            parts = int(max(1, -(-received.total[1] // (block.blocks * WEDGES_AT_ONCE))))
            state = _Similar(0, parts, joined(received.values))
        elif received.mail:
            state = replace(state, rows=(*state.rows, self._best(block, received.mail)))
        if state.part == state.parts:
            return Round(state, np.zeros(2))
        mail = self._told(block, state)
        return Round(replace(state, part=state.part + 1), np.ones(2), mail)

    def _told(self, block: Block, state: _Similar) -> dict[int, Payload]:
        ghosts = len(block.ghosts)
        turns = (block.ghosts // np.uint64(block.blocks)) % np.uint64(state.parts)
        edges = np.flatnonzero((turns == state.part)[block.sources])
        middles = block.targets()[edges]
        ways = block.in_degrees[middles]
        ends = np.cumsum(ways)
        last = int(ends[-1]) if len(ends) else 0
        cuts = np.searchsorted(ends, np.arange(WEDGES_AT_ONCE, last, WEDGES_AT_ONCE))
        codes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for start, stop in pairwise(np.unique([0, *cuts, len(edges)]).tolist()):
            sizes = ways[start:stop]
            ones = np.repeat(block.sources[edges[start:stop]].astype(np.int64), sizes)
            others = block.sources[ranges(block.pointers[middles[start:stop]], sizes)]
            found = (ones * ghosts + others)[ones != others]
            codes, counts = _added(
                np.append(codes, found), np.append(counts, np.ones(len(found), np.int64))
            )
        ones, others = np.divmod(codes, max(ghosts, 1))
        told = {}
        for owner, first, last in _ghost_ranges(block):
            mine = slice(*np.searchsorted(ones, [first, last]).tolist())
            if mine.stop > mine.start:
                places = ones[mine] - first
                there = others[mine]
                told[owner] = (
                    *(block.number, places, block.ghosts[there]),
                    *(state.around[there], counts[mine]),
                )
        return told

    def _best(self, block: Block, mail: Sequence[Payload]) -> tuple[Counts, Keys, Floats]:
        """The most similar nodes of those that mail tells of."""
        here = np.concatenate([block.sends[number][places] for number, places, *_ in mail])
        other, theirs, common = (np.concatenate([each[at] for each in mail]) for at in (2, 3, 4))
        order = np.lexsort((other, here))
        here, other, theirs = here[order].astype(np.int64), other[order], theirs[order]
        begins = np.flatnonzero(
            np.append(True, (here[1:] != here[:-1]) | (other[1:] != other[:-1]))
        )
        common = np.add.reduceat(common[order], begins)
        here, other, theirs = here[begins], other[begins], theirs[begins]
        ours = block.out_weights[here].astype(np.int64)
        values = similarity_of(self.measure, common, ours, theirs)
        best = most_similar(here, other, values, self.per_node, self.at_least)
        return here[best], other[best], values[best]

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether all parts are added up."""
        return bool(total[0] == 0)

    def columns(self, block: Block, state: _Similar) -> Columns:
        """`other`, as the key of a node, and `similarity`, of the nodes at `ROW_PLACES`."""
        empty = (np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0))
        here, other, values = map(np.concatenate, zip(empty, *state.rows, strict=True))
        order = np.argsort(here, kind="stable")
        return {ROW_PLACES: here[order], "other": other[order], "similarity": values[order]}


def _added(codes: Counts, counts: Counts) -> tuple[Counts, Counts]:
    """Each code once, ascending, with its counts added up."""
    if not len(codes):
        return codes, counts
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    return codes[begins], np.add.reduceat(counts[order], begins)


def most_similar(
    here: Counts, other: Keys, values: Floats, per_node: int, at_least: float
) -> Counts:
    """The rows to keep, by node and falling similarity; of equal ones, those with small keys."""
    kept = np.flatnonzero(values >= at_least)
    order = kept[np.lexsort((other[kept], -values[kept], here[kept]))]
    begins = np.searchsorted(here[order], here[order])
    return order[np.arange(len(order)) - begins < per_node]
