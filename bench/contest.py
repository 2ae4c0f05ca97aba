"""Questions put to several engines: first all answers are compared, then the time is taken.

Engines take turns: in every round each one is asked with all parameters in a row, and the one that
begins changes, so that a busy moment of the machine meets all of them alike. The best round counts,
by its median: other programs can only make a round slower. The comparison is also the warm-up, and
it is over before the first clock starts: engines are measured as they are after a while of service.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from bench.judges import Parameters, Rows
from bench.measure import seconds_of
from bench.peers import Form, Peer, rows_of
from bench.progress import note
from bench.questions import Chooser, Question, Wording
from bench.social import SocialGraph

TRIED = 5
"""Parameters with which forms are tried: enough to tell a better one."""


Verdict: TypeAlias = Callable[[Sequence[Parameters], Sequence[Rows], Sequence[Rows]], str | None]
"""What is wrong with answers, given what was asked and what the first engine answers."""


class Mismatch(Exception):
    """Engines disagree, so there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    parameters: int
    rounds: int
    seconds_max: float
    """No further round is begun after this time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The time of every engine that answers a question: the median of its best round."""

    question: Question
    seconds: Mapping[str, float]


def contests(
    questions: Sequence[Question], peers: Sequence[Peer], social: SocialGraph, effort: Effort
) -> list[Outcome]:
    """Compare the answers of all peers to all questions, then measure. Raises `Mismatch`."""
    asked = {
        question.name: question.ask(Chooser(social, effort.parameters)) for question in questions
    }
    entrants = {}
    for question in questions:
        note(f"{question.name}: {question.says}")
        verdict = partial(question.judge.fault, social)
        entrants[question.name] = agreeing(question, peers, verdict, asked[question.name])
    note("all agree; now the time is taken")
    return [
        Outcome(question, timed(entrants[question.name], asked[question.name], effort))
        for question in questions
    ]


def timed(
    entrants: Mapping[str, Form], asked: Sequence[Parameters], effort: Effort
) -> dict[str, float]:
    """The median seconds of every entrant in its best round."""
    best = dict.fromkeys(entrants, float("inf"))
    order = list(entrants)
    began = time.perf_counter()
    for _ in range(effort.rounds):
        gc.collect()
        order.append(order.pop(0))
        for name in order:
            median = statistics.median(_seconds(entrants[name], asking) for asking in asked)
            best[name] = min(best[name], median)
        if time.perf_counter() - began > effort.seconds_max:
            break
    return best


def agreeing(
    question: Wording, peers: Sequence[Peer], verdict: Verdict, asked: Sequence[Parameters]
) -> dict[str, Form]:
    """The fastest form of every peer, by its name, once all their answers were compared."""
    tried = asked[:TRIED]
    chosen: dict[str, Form] = {}
    expected: list[Rows] | None = None
    for peer in peers:
        right: list[Form] = []
        faults: list[str] = []
        for form in peer.forms(question):
            answers = [rows_of(form(parameters)) for parameters in tried]
            expected = expected or answers
            fault = verdict(tried, answers, expected)
            if fault is None:
                right.append(form)
            else:
                faults.append(f"{question.name}: {peer.name} gives {fault}")
        if faults and not right:
            raise Mismatch(faults[0])
        for fault in faults:
            note(f"a form that is left out: {fault}")
        if right:
            chosen[peer.name] = _fastest(right, tried)
    _compare_all(question, chosen, verdict, asked)
    return chosen


def _fastest(forms: Sequence[Form], tried: Sequence[Parameters]) -> Form:
    """The form with the best median; they have all been asked before."""
    if len(forms) == 1:
        return forms[0]
    return min(
        forms, key=lambda form: statistics.median(_seconds(form, asking) for asking in tried)
    )


def _compare_all(
    question: Wording,
    chosen: Mapping[str, Form],
    verdict: Verdict,
    asked: Sequence[Parameters],
) -> None:
    """Compare the answers to all parameters, also those no form was tried with."""
    answers = {
        name: [rows_of(form(parameters)) for parameters in asked] for name, form in chosen.items()
    }
    expected = next(iter(answers.values()))
    for name, given in answers.items():
        fault = verdict(asked, given, expected)
        if fault is not None:
            raise Mismatch(f"{question.name}: {name} gives {fault}")


def _seconds(form: Form, parameters: Parameters) -> float:
    return seconds_of(partial(form, parameters))
