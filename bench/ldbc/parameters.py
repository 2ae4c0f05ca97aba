"""What the reads are asked with: drawn from a network, the same in every run.

People are drawn by their friendships, so that busy ones come up more often, as in the benchmark;
dates, tags and places are drawn so that there is something to find.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.judges import Parameters
from bench.ldbc.generator import Network


class Drawing:
    """Draws values from a network."""

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._random = np.random.default_rng([network.seed, *name.encode()])

    @cached_property
    def _ends(self) -> np.ndarray[Any, Any]:
        knows = self._network.edges["Knows"]
        return np.concatenate((knows["from"].to_numpy(), knows["to"].to_numpy()))

    def person(self) -> int:
        """Somebody, by friendships."""
        return int(self._random.choice(self._ends))

    def answered(self) -> list[str]:
        """The names of the cities of somebody who replied to somebody, and of the other one."""
        edges = self._network.edges
        replies = edges["ReplyOf"]
        at = int(self._random.integers(replies.num_rows))
        authors, homes = edges["HasCreator"], edges["PersonIsLocatedIn"]
        names = self._network.nodes["City"]
        found = []
        for end in ("from", "to"):
            message = replies[end][at]
            author = authors.filter(pc.equal(authors["from"], message))["to"][0]
            city = homes.filter(pc.equal(homes["from"], author))["to"][0]
            found.append(str(names.filter(pc.equal(names["no"], city))["name"][0].as_py()))
        return found

    @cached_property
    def _fellow_students(self) -> list[tuple[int, int]]:
        """Friends who studied at one university, and where the second one works."""
        edges = self._network.edges
        knows, studies, works = (
            list(zip(edges[name]["from"].to_pylist(), edges[name]["to"].to_pylist(), strict=True))
            for name in ("Knows", "StudyAt", "WorkAt")
        )
        studied = set(studies)
        by_person: dict[int, list[int]] = {}
        for person, university in studies:
            by_person.setdefault(person, []).append(university)
        company = dict(works)
        friends = [*knows, *((b, a) for a, b in knows)]
        return [
            (person, company[friend])
            for person, friend in friends
            if friend in company
            and any((friend, each) in studied for each in by_person.get(person, ()))
        ]

    def fellow_student(self) -> tuple[int, str]:
        """Somebody who studied, and the name of the company of a fellow student."""
        pairs = self._fellow_students
        person, company = pairs[int(self._random.integers(len(pairs)))]
        table = self._network.nodes["Company"]
        return person, str(table.filter(pc.equal(table["no"], company))["name"][0].as_py())

    def message(self) -> int:
        """A message that was replied to."""
        return int(self._random.choice(self._network.edges["ReplyOf"]["to"].to_numpy()))

    def common(self, kind: str, column: str) -> str:
        """A value of a text column, by how often it occurs."""
        table = self._network.nodes[kind]
        return str(table[column][int(self._random.integers(table.num_rows))].as_py())

    def used_tag(self) -> str:
        """The name of a tag, by the messages that have it."""
        tag = self._random.choice(self._network.edges["HasTag"]["to"].to_numpy())
        return str(self._network.nodes["Tag"]["name"][int(tag)].as_py())

    def tag_class(self, direct: bool) -> str:
        """A class: of some tag, or one that classes are below."""
        edges = self._network.edges
        drawn = edges["HasType" if direct else "IsSubclassOf"]["to"].to_numpy()
        return str(self._network.nodes["TagClass"]["name"][int(self._random.choice(drawn))].as_py())

    def countries(self, count: int) -> list[str]:
        """Different countries, large ones more often."""
        homes = self._network.edges["IsPartOf"]
        homes = homes.filter(pc.equal(homes["from_type"], "City"))["to"].to_numpy()
        people = np.unique(homes, return_counts=True)
        weights = people[1] / people[1].sum()
        drawn = self._random.choice(people[0], count, replace=False, p=weights)
        names = self._network.nodes["Country"]["name"]
        return [names[int(number)].as_py() for number in drawn]

    @cached_property
    def _journeys(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Authors, the two foreign countries they wrote from one after the other, and when first.

        Numbered columns: a message, a person or a place is at the place of its number.
        """
        edges, nodes = self._network.edges, self._network.nodes

        def targets(edge: str, count: int) -> np.ndarray[Any, Any]:
            found = np.full(count, -1)
            found[edges[edge]["from"].to_numpy()] = edges[edge]["to"].to_numpy()
            return found

        messages = self._network.messages
        author, country = targets("HasCreator", messages), targets("MessageIsLocatedIn", messages)
        written = np.zeros(messages, "datetime64[ms]")
        for kind in ("Post", "Comment"):
            written[nodes[kind]["no"].to_numpy()] = (
                nodes[kind]["creationDate"].cast("timestamp[ms]").to_numpy()
            )
        homes = edges["IsPartOf"].filter(pc.equal(edges["IsPartOf"]["from_type"], "City"))
        country_of = dict(zip(homes["from"].to_pylist(), homes["to"].to_pylist(), strict=True))
        city = targets("PersonIsLocatedIn", nodes["Person"].num_rows)
        home = np.array([country_of[each] for each in city.tolist()])
        away = np.flatnonzero(country != home[author])
        away = away[np.lexsort((written[away], author[away]))]
        first, second = away[:-1], away[1:]
        pairs = (author[first] == author[second]) & (country[first] != country[second])
        first, second = first[pairs], second[pairs]
        return author[first], country[first], country[second], written[first]

    def journey(self) -> tuple[int, str, str, dt.datetime]:
        """A friend of somebody who wrote from two countries, these, and the day of the first."""
        authors, one, other, written = self._journeys
        at = int(self._random.integers(len(authors)))
        knows = self._network.edges["Knows"]
        ends = knows["from"].to_numpy(), knows["to"].to_numpy()
        friends = np.concatenate((ends[1][ends[0] == authors[at]], ends[0][ends[1] == authors[at]]))
        friend = int(self._random.choice(friends)) if len(friends) else self.person()
        names = self._network.nodes["Country"]["name"]
        day = dt.datetime.fromisoformat(str(written[at].astype("datetime64[D]")))
        return friend, names[int(one[at])].as_py(), names[int(other[at])].as_py(), day

    def home(self, person: int | None = None) -> str:
        """The name of the country of a person, or of anybody."""
        edges = self._network.edges
        cities = edges["PersonIsLocatedIn"]["to"].to_numpy()
        city = int(cities[person] if person is not None else self._random.choice(cities))
        within = edges["IsPartOf"].filter(pc.equal(edges["IsPartOf"]["from_type"], "City"))
        country = within.filter(pc.equal(within["from"], city))["to"][0].as_py()
        return str(self._network.nodes["Country"]["name"][country].as_py())

    @cached_property
    def _tagged(self) -> pa.Table:
        """Tags of messages with the author and the day of each, in the order of authors."""
        edges, nodes = self._network.edges, self._network.nodes
        messages = [nodes[kind].select(["no", "creationDate"]) for kind in ("Post", "Comment")]
        written = pa.concat_tables(messages).sort_by("no")["creationDate"]
        author = edges["HasCreator"].sort_by("from")["to"]
        message = edges["HasTag"]["from"]
        return pa.table(
            {
                "author": author.take(message),
                "day": pc.floor_temporal(written.take(message), unit="day"),
                "tag": edges["HasTag"]["to"],
            }
        ).sort_by([("author", "ascending"), ("day", "ascending")])

    def two_topics(self) -> list[tuple[str, dt.datetime]]:
        """Two tags that somebody used one after the other, and the day of each."""
        at = int(self._random.integers(self._tagged.num_rows - 1))
        names = self._network.nodes["Tag"]["name"]
        rows = self._tagged.slice(at, 2).to_pylist()
        return [(names[row["tag"]].as_py(), row["day"].replace(tzinfo=None)) for row in rows]

    def expert(self) -> tuple[str, str]:
        """The country of somebody who wrote about a tag, and the class of that."""
        (row,) = self._tagged.slice(
            int(self._random.integers(self._tagged.num_rows)), 1
        ).to_pylist()
        of_tag = self._network.edges["HasType"].sort_by("from")["to"][row["tag"]].as_py()
        name = self._network.nodes["TagClass"]["name"][of_tag].as_py()
        return self.home(row["author"]), name

    def popular_tag(self) -> str:
        """The name of one of the ten tags that most messages have."""
        used = np.bincount(self._network.edges["HasTag"]["to"].to_numpy())
        tag = int(self._random.choice(np.argsort(-used, kind="stable")[:10]))
        return str(self._network.nodes["Tag"]["name"][tag].as_py())

    def day(self, first: str, last: str) -> dt.datetime:
        """The beginning of a day."""
        begin, end = (dt.datetime.fromisoformat(text) for text in (first, last))
        return begin + dt.timedelta(days=int(self._random.integers((end - begin).days)))

    def number(self, low: int, high: int) -> int:
        """A number from low to high."""
        return int(self._random.integers(low, high + 1))


def parameters(network: Network, name: str, count: int) -> list[Parameters]:
    """What a read is asked with, so many times."""
    drawing = Drawing(network, name)
    return [_DRAWN[name](drawing) for _ in range(count)]


def _person(draw: Drawing) -> Parameters:
    return {"person": draw.person()}


def _message(draw: Drawing) -> Parameters:
    return {"message": draw.message()}


def _two_people(draw: Drawing) -> Parameters:
    one = other = draw.person()
    while other == one:
        other = draw.person()
    return {"one": one, "other": other}


def _period(draw: Drawing, days: int) -> dict[str, Any]:
    start = draw.day("2011-01-01", "2012-06-01")
    return {"startDate": start, "endDate": start + dt.timedelta(days=days)}


def _abroad(draw: Drawing) -> Parameters:
    person, one, other, start = draw.journey()
    period = {"startDate": start, "endDate": start + dt.timedelta(days=180)}
    return {"person": person, "countryX": one, "countryY": other, **period}


def _birthdays(draw: Drawing) -> Parameters:
    month = draw.number(1, 12)
    return {"person": draw.person(), "month": month, "nextMonth": month % 12 + 1}


def _two_topics(draw: Drawing) -> Parameters:
    (one, first), (other, second) = draw.two_topics()
    days = {"dateA": first, "dateB": second}
    return {"tagA": one, "tagB": other, **days, "friends": draw.number(0, 4)}


def _circle(draw: Drawing) -> Parameters:
    country, tag_class = draw.expert()
    distance = {"near": 2, "far": 3}
    return {"person": draw.person(), "country": country, "tagClass": tag_class, **distance}


def _moderated(draw: Drawing) -> Parameters:
    country, tag_class = draw.expert()
    return {"country": country, "tagClass": tag_class}


def _two_countries(draw: Drawing) -> Parameters:
    one, other = draw.countries(2)
    return {"country1": one, "country2": other}


def _two_cities(draw: Drawing) -> Parameters:
    one = other = ""
    while one == other:
        one, other = draw.answered()
    return {"city1": one, "city2": other}


def _recruitment(draw: Drawing) -> Parameters:
    person, company = draw.fellow_student()
    return {"person": person, "company": company}


def _short_texts(draw: Drawing) -> Parameters:
    languages = sorted({draw.common("Post", "language") for _ in range(3)})
    start = draw.day("2010-06-01", "2012-06-01")
    return {"startDate": start, "length": draw.number(40, 160), "languages": languages}


_DRAWN: Mapping[str, Callable[[Drawing], Parameters]] = {
    "ic1": lambda draw: {"person": draw.person(), "firstName": draw.common("Person", "firstName")},
    "ic2": lambda draw: {"person": draw.person(), "maxDate": draw.day("2012-01-01", "2012-12-01")},
    "ic3": _abroad,
    "ic4": lambda draw: {"person": draw.person(), **_period(draw, 60)},
    "ic5": lambda draw: {"person": draw.person(), "minDate": draw.day("2011-06-01", "2012-11-01")},
    "ic6": lambda draw: {"person": draw.person(), "tag": draw.used_tag()},
    "ic7": _person,
    "ic8": _person,
    "ic9": lambda draw: {"person": draw.person(), "maxDate": draw.day("2012-01-01", "2012-12-01")},
    "ic10": _birthdays,
    "ic11": lambda draw: {
        "person": draw.person(),
        "country": draw.countries(1)[0],
        "year": draw.number(2002, 2012),
    },
    "ic12": lambda draw: {"person": draw.person(), "tagClass": draw.tag_class(direct=False)},
    "ic13": _two_people,
    "ic14": _two_people,
    "is1": _person,
    "is2": _person,
    "is3": _person,
    "is4": _message,
    "is5": _message,
    "is6": _message,
    "is7": _message,
    "bi1": lambda draw: {"date": draw.day("2011-01-01", "2013-01-01")},
    "bi2": lambda draw: {
        "tagClass": draw.tag_class(direct=True),
        "date": draw.day("2010-06-01", "2012-06-01"),
    },
    "bi3": _moderated,
    "bi4": lambda draw: {"date": draw.day("2010-02-01", "2012-06-01")},
    "bi5": lambda draw: {"tag": draw.used_tag()},
    "bi6": lambda draw: {"tag": draw.used_tag()},
    "bi7": lambda draw: {"tag": draw.used_tag()},
    "bi8": lambda draw: {"tag": draw.used_tag(), **_period(draw, 180)},
    "bi9": lambda draw: _period(draw, 90),
    "bi10": _circle,
    "bi11": lambda draw: {"country": draw.home(), **_period(draw, 500)},
    "bi12": _short_texts,
    "bi13": lambda draw: {"country": draw.home(), "endDate": draw.day("2012-01-01", "2013-01-01")},
    "bi14": _two_countries,
    "bi15": lambda draw: {**_two_people(draw), **_period(draw, 180)},
    "bi16": _two_topics,
    "bi17": lambda draw: {"tag": draw.popular_tag(), "hours": draw.number(1, 24)},
    "bi18": lambda draw: {"tag": draw.used_tag()},
    "bi19": _two_cities,
    "bi20": _recruitment,
}
