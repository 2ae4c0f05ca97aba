"""A social network in the shape of the LDBC benchmark: the same rows for the same size and seed.

The facts are those of its public specification: who may have which edges, that nothing happens
before its parts exist, that degrees are skewed, that friends come from the same places and share
interests, that messages are answered in trees and written where their authors live or travel. The
names, texts and distributions are made here, column by column.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Random: TypeAlias = np.random.Generator

SEED = 11
DAY = 86_400_000
FIRST = int(dt.datetime(2010, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
LAST = int(dt.datetime(2013, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
"""Activity lasts for three years."""
CONTINENTS, COUNTRIES, CITIES = 6, 60, 600
UNIVERSITIES, COMPANIES = 600, 500
CLASSES, TAGS = 60, 2_000
FIRST_NAMES, LAST_NAMES, BROWSERS, LANGUAGES = 240, 600, 5, 24
FRIENDS = 18
"""Stored friendships for each person; each counts for both."""
INTERESTS = 12
TRAVELLING = 0.12
"""The share of messages written in another country than the author's."""
LEVELS = 6
"""The depth of reply trees."""
MEMBERS_MAX = 400


@dataclass(frozen=True, slots=True)
class Size:
    """How large a network is; its name is part of the names of files made from it."""

    name: str
    persons: int
    messages: int
    """About as many: replies that would come after the end are left out."""


@dataclass(frozen=True)
class Network:
    """The rows of one network: a table for each type of node and edge, by its name.

    Nodes have a number in ``no``. Edges have numbers of nodes in ``from`` and ``to``, and names of
    types beside them where an end is an interface.
    """

    size: Size
    seed: int
    nodes: Mapping[str, pa.Table]
    edges: Mapping[str, pa.Table]

    @property
    def messages(self) -> int:
        """Posts and comments."""
        return int(self.nodes["Post"].num_rows + self.nodes["Comment"].num_rows)


@dataclass(frozen=True)
class _Lists:
    """Lists of numbers, one for each of a range of owners: the values in a row, and where."""

    starts: Integers
    values: Integers

    @classmethod
    def of(cls, owners: Integers, values: Integers, count: int) -> _Lists:
        order = np.argsort(owners, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=count))))
        return cls(starts, values[order])

    def sizes(self, owners: Integers) -> Integers:
        return np.asarray(self.starts[owners + 1] - self.starts[owners])

    def one_each(self, random: Random, owners: Integers) -> Integers:
        """A value of each owner, drawn at random; owners without any get -1."""
        sizes = self.sizes(owners)
        places = self.starts[owners] + (random.random(len(owners)) * sizes).astype(np.int64)
        found = self.values[np.minimum(places, len(self.values) - 1)]
        return np.where(sizes > 0, found, -1)


def generate(size: Size, seed: int = SEED) -> Network:
    """The network of a size and a seed."""
    return _Generation(size, seed).network()


class _Generation:
    """One run of the generator: each step uses what the steps before it made."""

    def __init__(self, size: Size, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.random = np.random.default_rng([seed, size.persons, size.messages])
        self.nodes: dict[str, pa.Table] = {}
        self.edges: dict[str, pa.Table] = {}

    def network(self) -> Network:
        """All steps in their order."""
        self._world()
        self._persons()
        self._friends()
        self._forums()
        self._posts()
        self._comments()
        self._likes()
        return Network(self.size, self.seed, self.nodes, self.edges)

    # --- places, organisations, tags --------------------------------------------------------------

    def _world(self) -> None:
        random = self.random
        self.country_continent = np.sort(random.integers(0, CONTINENTS, COUNTRIES))
        self.city_country = np.sort(_skewed(random, COUNTRIES, CITIES, 0.7))
        self.city_country[:COUNTRIES] = np.arange(COUNTRIES)
        self.city_country.sort()
        self._named("Continent", _names("Continent", CONTINENTS))
        self._named("Country", _names("Country", COUNTRIES))
        self._named("City", _names("City", CITIES))
        cities, countries = np.arange(CITIES), np.arange(COUNTRIES)
        self._edges(
            "IsPartOf",
            np.concatenate((cities, countries)),
            np.concatenate((self.city_country, self.country_continent)),
            from_type=["City"] * CITIES + ["Country"] * COUNTRIES,
            to_type=["Country"] * CITIES + ["Continent"] * COUNTRIES,
        )
        self.university_city = random.integers(0, CITIES, UNIVERSITIES)
        self.company_country = _skewed(random, COUNTRIES, COMPANIES, 0.6)
        self._named("University", _names("University", UNIVERSITIES))
        self._named("Company", _names("Company", COMPANIES))
        self._edges(
            "OrganisationIsLocatedIn",
            np.concatenate((np.arange(UNIVERSITIES), np.arange(COMPANIES))),
            np.concatenate((self.university_city, self.company_country)),
            from_type=["University"] * UNIVERSITIES + ["Company"] * COMPANIES,
            to_type=["City"] * UNIVERSITIES + ["Country"] * COMPANIES,
        )
        parents = (random.random(CLASSES - 1) ** 1.5 * np.arange(1, CLASSES)).astype(np.int64)
        self.tag_class = 1 + _skewed(random, CLASSES - 1, TAGS, 0.6)
        self._named("TagClass", _names("Class", CLASSES))
        self._named("Tag", _names("Tag", TAGS))
        self._edges("IsSubclassOf", np.arange(1, CLASSES), parents)
        self._edges("HasType", np.arange(TAGS), self.tag_class)

    # --- persons ----------------------------------------------------------------------------------

    def _persons(self) -> None:
        random, count = self.random, self.size.persons
        self.person_city = _skewed(random, CITIES, count, 0.5)
        country = self.city_country[self.person_city]
        self.person_country = country
        self.person_created = FIRST + (random.random(count) ** 1.5 * 900 * DAY).astype(np.int64)
        self.activity = random.lognormal(0, 1.1, count)
        # Names are frequent by country, so that friends of friends often share one.
        first = (_skewed(random, FIRST_NAMES, count, 0.9) + 7 * country) % FIRST_NAMES
        last = (_skewed(random, LAST_NAMES, count, 0.6) + 13 * country) % LAST_NAMES
        first_names, last_names = _words(FIRST_NAMES, 5, 1), _words(LAST_NAMES, 7, 2)
        born = random.integers(-20 * 365, 22 * 365, count)
        mails = [
            [f"{first_names[f].lower()}{n}@mail{k}.example" for k in range(m)]
            for n, (f, m) in enumerate(
                zip(first.tolist(), random.integers(1, 4, count).tolist(), strict=True)
            )
        ]
        self.person_language = country % LANGUAGES
        languages = _names("lang", LANGUAGES)
        second = random.integers(0, LANGUAGES, count)
        speaks = [
            sorted({languages[a], languages[b]})
            for a, b in zip(self.person_language.tolist(), second.tolist(), strict=True)
        ]
        self.nodes["Person"] = pa.table(
            {
                "no": np.arange(count),
                "firstName": _taken(first_names, first),
                "lastName": _taken(last_names, last),
                "gender": _taken(["female", "male"], random.integers(0, 2, count)),
                "birthday": pa.array(born.astype(np.int32)).cast(pa.date32()),
                "creationDate": _times(self.person_created),
                **self._origin(np.arange(count)),
                "email": pa.array(mails),
                "speaks": pa.array(speaks),
            }
        )
        self._edges("PersonIsLocatedIn", np.arange(count), self.person_city)
        self._studies(born)
        self._interests()

    def _studies(self, born: Integers) -> None:
        random, count = self.random, self.size.persons
        year = 1970 + born // 365
        universities = _Lists.of(
            self.city_country[self.university_city], np.arange(UNIVERSITIES), COUNTRIES
        )
        self.person_university = universities.one_each(random, self.person_country)
        self.person_university[random.random(count) < 0.2] = -1
        who = np.flatnonzero(self.person_university >= 0)
        self._edges(
            "StudyAt",
            who,
            self.person_university[who],
            classYear=(year[who] + random.integers(18, 25, len(who))).astype(np.int32),
        )
        who = np.repeat(np.arange(count), random.integers(0, 4, count))
        companies = _Lists.of(self.company_country, np.arange(COMPANIES), COUNTRIES)
        near = companies.one_each(random, self.person_country[who])
        abroad = random.integers(0, COMPANIES, len(who))
        where = np.where((near < 0) | (random.random(len(who)) < 0.3), abroad, near)
        since = (year[who] + random.integers(20, 32, len(who))).clip(1998, 2012)
        keep = _first_of_each(who * COMPANIES + where)
        self._edges("WorkAt", who[keep], where[keep], workFrom=since[keep].astype(np.int32))

    def _interests(self) -> None:
        random, count = self.random, self.size.persons
        number = random.poisson(INTERESTS - 1, count) + 1
        who = np.repeat(np.arange(count), number)
        favourite = (_skewed(random, TAGS, count, 0.8) + 31 * self.person_country) % TAGS
        of_class = _Lists.of(self.tag_class, np.arange(TAGS), CLASSES)
        alike = of_class.one_each(random, self.tag_class[favourite[who]])
        popular = _skewed(random, TAGS, len(who), 0.8)
        which = np.where(random.random(len(who)) < 0.5, alike, popular)
        keep = _first_of_each(who * TAGS + which)
        who, which = who[keep], which[keep]
        self.person_favourite = favourite
        self.interests = _Lists.of(who, which, count)
        self._edges("HasInterest", who, which)

    def _friends(self) -> None:
        """Neighbours by place of study, by interest, and at random, as the specification has it."""
        random, count = self.random, self.size.persons
        degree = random.lognormal(0, 0.9, count)
        degree *= FRIENDS / degree.mean()
        pairs: list[Integers] = []
        places = (self.person_country * (UNIVERSITIES + 1) + self.person_university).astype(float)
        for key, share, near in (
            (places, 0.45, True),
            (self.person_favourite.astype(float), 0.45, True),
            (np.zeros(count), 0.1, False),
        ):
            order = np.lexsort((random.random(count), key))
            budget = random.poisson(np.minimum(degree * share * 1.08, count / 8))
            at = np.repeat(np.arange(count), budget[order])
            reach = random.geometric(1 / (2 * FRIENDS), len(at))
            away = reach if near else random.integers(1, count, len(at))
            one, other = order[at], order[(at + away) % count]
            pairs.append(np.minimum(one, other) * count + np.maximum(one, other))
        found = np.unique(np.concatenate(pairs))
        one, other = found // count, found % count
        one, other = one[one != other], other[one != other]
        since = np.maximum(self.person_created[one], self.person_created[other])
        since = _later(random, since, 90)
        self._edges("Knows", one, other, creationDate=_times(since))
        self.friends_of = np.concatenate((one, other))
        self.friends = np.concatenate((other, one))
        self.friends_since = np.concatenate((since, since))

    # --- forums -----------------------------------------------------------------------------------

    def _forums(self) -> None:
        """A wall for everybody, albums of some, and groups that gather around an interest."""
        random, count = self.random, self.size.persons
        albums = np.repeat(np.arange(count), random.poisson(1.2, count))
        groups = _skewed(random, count, count // 2, 0.3)
        moderator = np.concatenate((np.arange(count), albums, groups))
        kind = np.repeat([0, 1, 2], [count, len(albums), len(groups)])
        created = _later(random, self.person_created[moderator], 120)
        created[:count] = self.person_created + 1
        order = np.argsort(created, kind="stable")
        moderator, kind, created = moderator[order], kind[order], created[order]
        forums = len(moderator)
        titles = [
            f"{name} {number}"
            for number, name in enumerate(_taken(["Wall", "Album", "Group"], kind).to_pylist())
        ]
        self.nodes["Forum"] = pa.table(
            {"no": np.arange(forums), "title": titles, "creationDate": _times(created)}
        )
        self._edges("HasModerator", np.arange(forums), moderator)
        self.forum_kind, self.forum_moderator = kind, moderator
        topics = random.poisson(0.8, forums) + 1
        forum = np.repeat(np.arange(forums), topics)
        topic = self.interests.one_each(random, moderator[forum])
        keep = _first_of_each(forum * TAGS + topic)
        self.forum_topics = _Lists.of(forum[keep], topic[keep], forums)
        self._edges("ForumHasTag", forum[keep], topic[keep])
        self._members(created)

    def _members(self, created: Integers) -> None:
        random, count, forums = self.random, self.size.persons, len(created)
        friends = _Lists.of(self.friends_of, self.friends, count)
        degree = friends.sizes(self.forum_moderator)
        share = np.array([0.6, 0.3, 0.5])[self.forum_kind]
        from_friends = random.binomial(degree, share)
        wide = np.minimum(random.lognormal(2.6, 1.0, forums), MEMBERS_MAX).astype(np.int64)
        from_friends_of_friends = np.where(self.forum_kind == 2, wide, 0)
        near = np.repeat(np.arange(forums), from_friends)
        nearby = friends.one_each(random, self.forum_moderator[near])
        far = np.repeat(np.arange(forums), from_friends_of_friends)
        between = friends.one_each(random, self.forum_moderator[far])
        away = np.where(between >= 0, friends.one_each(random, np.maximum(between, 0)), -1)
        strangers = random.integers(0, count, len(far))
        away = np.where((away < 0) | (random.random(len(far)) < 0.3), strangers, away)
        forum = np.concatenate((near, far))
        member = np.concatenate((nearby, away))
        keep = _first_of_each(forum * count + member)
        keep = keep[member[keep] != self.forum_moderator[forum[keep]]]
        forum, member = forum[keep], member[keep]
        joined = _later(random, np.maximum(created[forum], self.person_created[member]), 150)
        order = np.lexsort((joined, forum))
        forum, member, joined = forum[order], member[order], joined[order]
        self._edges("HasMember", forum, member, joinDate=_times(joined))
        # Moderators take part in what is written, although they are no members.
        self.present_forum = np.concatenate((forum, np.arange(forums)))
        self.present_person = np.concatenate((member, self.forum_moderator))
        self.present_since = np.concatenate((joined, created))
        self.present = _Lists.of(self.present_forum, np.arange(len(self.present_forum)), forums)

    # --- messages ---------------------------------------------------------------------------------

    def _posts(self) -> None:
        random = self.random
        # Walls and albums are written by their owner most of the time, groups by everybody.
        owner = self.present_person == self.forum_moderator[self.present_forum]
        group = self.forum_kind[self.present_forum] == 2
        weight = self.activity[self.present_person] * np.where(owner, 8.0, np.where(group, 1, 0.15))
        chosen = _weighted(random, weight, int(self.size.messages * 0.36))
        self.post_forum = self.present_forum[chosen]
        self.post_author = self.present_person[chosen]
        self.post_date = _later(random, self.present_since[chosen], 400)
        posts = len(chosen)
        album = self.forum_kind[self.post_forum] == 1
        self.post_picture = album & (random.random(posts) < 0.9)
        number = np.where(self.post_picture, 0, 1 + random.poisson(0.7, posts))
        post = np.repeat(np.arange(posts), number)
        own = self.interests.one_each(random, self.post_author[post])
        topic = self.forum_topics.one_each(random, self.post_forum[post])
        tag = np.where(random.random(len(post)) < 0.6, own, topic)
        keep = _first_of_each(post * TAGS + tag)
        self.post_tag = (post[keep], tag[keep])

    def _comments(self) -> None:
        """Replies to posts, then replies to those, level by level; then all messages are one."""
        random, posts = self.random, len(self.post_forum)
        wanted = self.size.messages - posts
        forum, author, date = self.post_forum, self.post_author, self.post_date
        parent, root = np.full(posts, -1), np.arange(posts)
        last = np.arange(posts)
        for level in range(1, LEVELS + 1):
            weight = random.lognormal(0, 1.2, len(last)) * (
                self.post_picture[root[last]] * -0.7 + 1
            )
            number = int(wanted * (0.55 * 0.45 ** (level - 1)))
            above = last[_weighted(random, weight, number)]
            row = self.present.one_each(random, forum[above])
            when = np.maximum(date[above], self.present_since[row])
            when = when + 1 + (random.exponential(0.6 * DAY, number)).astype(np.int64)
            keep = when < LAST
            above, row, when = above[keep], row[keep], when[keep]
            last = np.arange(len(forum), len(forum) + len(above))
            forum = np.concatenate((forum, forum[above]))
            author = np.concatenate((author, self.present_person[row]))
            date = np.concatenate((date, when))
            parent = np.concatenate((parent, above))
            root = np.concatenate((root, root[above]))
        self._messages(forum, author, date, parent, root)

    def _messages(
        self, forum: Integers, author: Integers, date: Integers, parent: Integers, root: Integers
    ) -> None:
        random, posts, total = self.random, len(self.post_forum), len(forum)
        # Numbers follow time, over posts and comments together.
        number = np.empty(total, np.int64)
        number[np.argsort(date, kind="stable")] = np.arange(total)
        self.message_number, self.message_date, self.message_forum = number, date, forum
        picture = np.concatenate((self.post_picture, np.zeros(total - posts, np.bool_)))
        is_post = np.arange(total) < posts
        length = np.where(
            is_post, random.lognormal(4.3, 0.6, total), random.lognormal(3.7, 0.8, total)
        )
        length = np.where(picture, 0, np.clip(length, 3, 500)).astype(np.int64)
        texts = _texts(random, length)
        images = pa.array([f"photo{n}.jpg" for n in number[picture].tolist()], pa.string())
        image = images.take(pa.array(np.cumsum(picture) - 1, mask=~picture))
        language = _taken(_names("lang", LANGUAGES), self.person_language[author])
        columns = {
            "no": pa.array(number),
            "creationDate": _times(date),
            "content": pa.chunked_array([texts]).combine_chunks(),
            "imageFile": image,
            "length": pa.array(length.astype(np.int32)),
            **self._origin(author),
        }
        content = columns["content"].take(pa.array(np.arange(total), mask=picture))
        messages = pa.table({**columns, "content": content, "language": language})
        order = pa.array(np.argsort(number[:posts]))
        self.nodes["Post"] = messages.slice(0, posts).take(order)
        order = pa.array(np.argsort(number[posts:]))
        self.nodes["Comment"] = messages.slice(posts).take(order).drop_columns(["language"])
        self.types = _taken(["Comment", "Post"], is_post.astype(np.int64))
        self._edges("ContainerOf", forum[:posts], number[:posts])
        self._edges("HasCreator", number, author, from_type=self.types)
        away = random.random(total) < TRAVELLING
        home = self.person_country[author]
        abroad = (home + 1 + _skewed(random, COUNTRIES - 1, total, 0.8)) % COUNTRIES
        self._edges(
            "MessageIsLocatedIn", number, np.where(away, abroad, home), from_type=self.types
        )
        self._edges(
            "ReplyOf",
            number[posts:],
            number[parent[posts:]],
            to_type=self.types.take(pa.array(parent[posts:])),
        )
        self._tags(author, root, posts)

    def _tags(self, author: Integers, root: Integers, posts: int) -> None:
        random, comments = self.random, np.arange(posts, len(author))
        of_posts = _Lists.of(*self.post_tag, posts)
        inherited = of_posts.one_each(random, root[comments])
        inherited[random.random(len(comments)) > 0.6] = -1
        own = self.interests.one_each(random, author[comments])
        own[random.random(len(comments)) > 0.25] = -1
        message = np.concatenate((self.post_tag[0], comments, comments))
        tag = np.concatenate((self.post_tag[1], inherited, own))
        message, tag = message[tag >= 0], tag[tag >= 0]
        keep = _first_of_each(message * TAGS + tag)
        message, tag = message[keep], tag[keep]
        self._edges(
            "HasTag",
            self.message_number[message],
            tag,
            from_type=self.types.take(pa.array(message)),
        )

    def _likes(self) -> None:
        random, total, count = self.random, len(self.message_number), self.size.persons
        message = _weighted(random, random.lognormal(0, 1.3, total), int(total * 0.75))
        row = self.present.one_each(random, self.message_forum[message])
        person = self.present_person[row]
        keep = _first_of_each(message * count + person)
        message, row, person = message[keep], row[keep], person[keep]
        when = np.maximum(self.message_date[message], self.present_since[row])
        when = when + 1 + random.exponential(3 * DAY, len(when)).astype(np.int64)
        keep = np.flatnonzero(when < LAST)
        self._edges(
            "Likes",
            person[keep],
            self.message_number[message[keep]],
            to_type=self.types.take(pa.array(message[keep])),
            creationDate=_times(when[keep]),
        )

    # --- tables -----------------------------------------------------------------------------------

    def _origin(self, person: Integers) -> dict[str, pa.Array]:
        """Address and browser of something that a person made."""
        random = self.random
        low = random.integers(1, 255, (2, len(person)))
        country = self.person_country[person] + 10
        address = [
            f"{c}.{p}.{a}.{b}"
            for c, p, a, b in zip(
                country.tolist(), (person % 250).tolist(), *low.tolist(), strict=True
            )
        ]
        browser = _skewed(random, BROWSERS, len(person), 0.7)
        return {
            "locationIP": pa.array(address),
            "browserUsed": _taken(_names("Browser", BROWSERS), browser),
        }

    def _named(self, name: str, names: Sequence[str]) -> None:
        self.nodes[name] = pa.table({"no": np.arange(len(names)), "name": list(names)})

    def _edges(self, name: str, source: Integers, target: Integers, **columns: Any) -> None:
        self.edges[name] = pa.table({"from": source, "to": target, **columns})


# --- drawing --------------------------------------------------------------------------------------


def _skewed(random: Random, choices: int, count: int, skew: float) -> Integers:
    """Numbers below ``choices``, small ones more often."""
    weights = 1 / np.arange(1, choices + 1) ** skew
    return np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(count)).clip(
        0, choices - 1
    )


def _weighted(random: Random, weights: Floats, count: int) -> Integers:
    """Positions, each as often as its weight says, with repetition."""
    bounds = np.cumsum(weights)
    places = np.searchsorted(bounds, random.random(count) * bounds[-1])
    return np.asarray(places.clip(0, len(weights) - 1))


def _later(random: Random, moments: Integers, days: float) -> Integers:
    """Some time after each moment, within the three years."""
    after = moments + 1 + random.exponential(days * DAY, len(moments)).astype(np.int64)
    again = moments + 1 + (random.random(len(moments)) * (LAST - moments - 2)).astype(np.int64)
    return np.where(after < LAST, after, np.maximum(again, moments + 1))


def _first_of_each(values: Integers) -> Integers:
    """Positions of the first of equal values, ascending."""
    return np.sort(np.unique(values, return_index=True)[1])


# --- values ---------------------------------------------------------------------------------------


def _times(milliseconds: Integers) -> pa.Array:
    return pa.array(milliseconds).cast(pa.timestamp("ms", "UTC"))


def _names(what: str, count: int) -> list[str]:
    return [f"{what}_{number}" for number in range(count)]


def _taken(values: Sequence[str], places: Integers) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(places))


def _words(count: int, length: int, seed: int) -> list[str]:
    """Different words of one length that look like names."""
    random = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        letters = [
            "aeiou"[random.integers(5)] if place % 2 else "bdfgklmnprstvz"[random.integers(14)]
            for place in range(length)
        ]
        found["".join(letters).capitalize()] = None
    return list(found)


def _texts(random: Random, lengths: Integers) -> pa.Array:
    """Texts of given lengths, cut out of one long text at random places."""
    vocabulary = [word.lower() for word in _words(3_000, 6, 3)]
    chosen = _skewed(random, len(vocabulary), 200_000, 0.8)
    corpus = np.frombuffer(" ".join(vocabulary[n] for n in chosen.tolist()).encode(), np.uint8)
    starts = random.integers(0, len(corpus) - int(lengths.max(initial=0)), len(lengths))
    parts = []
    for at in range(0, max(len(lengths), 1), 100_000):
        length = lengths[at : at + 100_000]
        offsets = np.concatenate(([0], np.cumsum(length)))
        places = np.arange(offsets[-1]) + np.repeat(
            starts[at : at + 100_000] - offsets[:-1], length
        )
        text = pa.py_buffer(corpus[places].tobytes())
        bounds = pa.py_buffer(offsets.astype(np.int32).tobytes())
        parts.append(pa.StringArray.from_buffers(len(length), bounds, text))
    return pa.concat_arrays(parts)
