"""The reads and updates of the benchmark by name: what each is, and its texts in three languages.

The texts are in files beside this one, each under the name of its read. A read without a text in
our language is one that it cannot express. What updates have added is asked for by reads of their
own, for comparisons alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from bench.questions import Wording

FOLDER = Path(__file__).parent

COMPLEX: Mapping[str, str] = {
    "ic1": "people of a first name within three steps of friendship, with studies and work",
    "ic2": "recent messages of friends",
    "ic3": "people within two steps who wrote from two countries that are not theirs",
    "ic4": "tags that friends used for the first time in a period",
    "ic5": "forums that people within two steps joined, by their posts there",
    "ic6": "tags that go together with a tag in posts of people within two steps",
    "ic7": "who liked a person's messages last, each once",
    "ic8": "recent replies to a person's messages",
    "ic9": "recent messages of people within two steps",
    "ic10": "friends of friends with a birthday soon, by interests in common",
    "ic11": "people within two steps who worked in a country before a year",
    "ic12": "friends who answered posts about a class of tags",
    "ic13": "the length of the shortest path between two people",
    "ic14": "all shortest paths between two people, by replies along them",
}
SHORT: Mapping[str, str] = {
    "is1": "the profile of a person",
    "is2": "a person's recent messages, and the posts they belong to",
    "is3": "the friends of a person",
    "is4": "text and date of a message",
    "is5": "the author of a message",
    "is6": "the forum of a message and its moderator",
    "is7": "replies to a message, and whether their authors know its author",
}
BUSINESS: Mapping[str, str] = {
    "bi1": "messages by year, kind and length",
    "bi2": "tags of a class, by their use in two following periods",
    "bi3": "forums of a country, by messages about a class of tags",
    "bi4": "authors in the largest forums, by messages",
    "bi5": "authors about a tag, by messages, replies and likes",
    "bi6": "authors about a tag, by the likes of those who like them",
    "bi7": "tags of replies to messages about another tag",
    "bi8": "people interested in a tag, by their score and that of their friends",
    "bi9": "authors of discussions in a period, by threads and messages",
    "bi10": "experts of a country near a person, by tags",
    "bi11": "triangles of friends in a country since a date",
    "bi12": "how many people wrote how many messages",
    "bi13": "people of a country who write little, by likes from each other",
    "bi14": "pairs of friends in two countries, by interaction, best of each city",
    "bi15": "the cheapest path between two people, by interaction in a period",
    "bi16": "people who wrote about two tags on two days, with few friends among them",
    "bi17": "people who spread information about a tag from forum to forum",
    "bi18": "pairs who are not friends, by friends in common, interested in a tag",
    "bi19": "the closest people of two cities, by interaction",
    "bi20": "the closest people of a company, by studies in common along friendships",
}
READS: Mapping[str, str] = {**COMPLEX, **SHORT, **BUSINESS}
UPDATES: Mapping[str, str] = {
    "iu1": "add a person with interests, studies and work",
    "iu2": "add a like of a post",
    "iu3": "add a like of a comment",
    "iu4": "add a forum with its tags",
    "iu5": "add a member of a forum",
    "iu6": "add a post with its tags",
    "iu7": "add a comment with its tags",
    "iu8": "add a friendship",
}
ADDED: Mapping[str, str] = {
    f"added_{what}": f"{what} that were added"
    for what in ("people", "friendships", "likes", "forums", "members", "posts", "comments")
}
MEASURED: Mapping[str, str] = {**READS, **UPDATES}

_FILES = ("interactive", "business", "updates")
_MARKS = {".sql": "-- ", ".cypher": "// "}
_QUERY = re.compile(r"^query (\w+)", re.MULTILINE)


@cache
def wordings() -> Mapping[str, Wording]:
    """Every read that can be expressed, by its name."""
    return _wordings(READS)


@cache
def updates() -> Mapping[str, Wording]:
    """Every update, by its name."""
    return _wordings(UPDATES)


@cache
def added() -> Mapping[str, Wording]:
    """The reads of what updates have added."""
    return _wordings(ADDED)


def not_yet() -> list[str]:
    """The names of the reads that cannot be expressed."""
    return [name for name in READS if name not in wordings()]


def _wordings(names: Mapping[str, str]) -> Mapping[str, Wording]:
    ours = {name: text for file in _FILES for name, text in _queries(f"{file}.gq")}
    sql, cypher = _texts(".sql"), _texts(".cypher")
    return {
        name: Wording(name, says, ours[name], cypher.get(name, []), sql.get(name, []))
        for name, says in names.items()
        if name in ours
    }


def _queries(file: str) -> Iterator[tuple[str, str]]:
    """The queries of a file, each alone with its name."""
    text = (FOLDER / file).read_text("utf-8")
    found = list(_QUERY.finditer(text))
    bounds = [each.start() for each in found] + [len(text)]
    for each, (start, end) in zip(found, pairwise(bounds), strict=True):
        yield each[1], text[start:end]


def _texts(suffix: str) -> dict[str, list[str]]:
    """The texts of all files of a language; more than one of a name are forms of the same read."""
    found: dict[str, list[str]] = {}
    for file in _FILES:
        name = ""
        for line in (FOLDER / f"{file}{suffix}").read_text("utf-8").splitlines(keepends=True):
            if line.startswith(_MARKS[suffix]) and line[3:].strip() in {*MEASURED, *ADDED}:
                name = line[3:].strip()
                found.setdefault(name, []).append("")
            elif name:
                found[name][-1] += line
    return found
