"""Whether a pinned package has a known vulnerability: `make audit`.

    python -m tests.packaging.audit [--strict]

Every pin of `constraints.txt` is looked up, at OSV if that can be reached, and otherwise at the
package index that pip uses. A finding that `advisories.toml` does not explain ends in exit code 1.
What could not be looked up is said in one line, and only `--strict` makes that a failure, too: a
check that needs a network must not stop somebody who has none, and must not pass for a clean
result either.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
PINS = ROOT / "constraints.txt"
ACCEPTED = ROOT / "advisories.toml"

OSV_URL = "https://api.osv.dev/v1"
INDEX_VARIABLE = "PIP_INDEX_URL"
INDEX_KEY = "global.index-url"
INDEX_OF_PIP = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
LOOKUPS_AT_ONCE = 16
NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Pin:
    """One line of the constraints."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Finding:
    """An advisory about a version we install."""

    pin: Pin
    names: frozenset[str]
    """Its ids: databases have their own."""
    summary: str = ""

    def __str__(self) -> str:
        about = f": {self.summary}" if self.summary else ""
        return f"{self.pin}: {', '.join(sorted(self.names))}{about}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An advisory that does not apply to us, and why."""

    id: str
    package: str
    reason: str
    date: date

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is this one."""
        return self.package == finding.pin.name and self.id in finding.names


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, and what could not be looked up."""

    findings: tuple[Finding, ...]
    unknown: tuple[Pin, ...]


def read_pins(path: Path) -> list[Pin]:
    """Every pinned package."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Pin(*line.split("==")) for line in lines if line]


def read_accepted(path: Path) -> list[Accepted]:
    """The advisories that somebody has looked at."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("accepted", [])
    return [Accepted(**entry) for entry in entries]


# --- asking ---------------------------------------------------------------------------------------


def audit(pins: Sequence[Pin], osv_url: str, index_url: str | None) -> Audit:
    """Look every pin up: all at OSV, or else one by one at the index."""
    timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        try:
            return Audit(tuple(_ask_osv(client, osv_url, pins)), ())
        except httpx.HTTPError:
            pass
        if index_url is None:
            return Audit((), tuple(pins))
        with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as pool:
            answers = list(pool.map(lambda pin: _ask_index(client, index_url, pin), pins))
    told = [found for found in answers if found is not None]
    unknown = [pin for pin, found in zip(pins, answers, strict=True) if found is None]
    return Audit(tuple(each for found in told for each in found), tuple(unknown))


def _ask_osv(client: httpx.Client, url: str, pins: Sequence[Pin]) -> list[Finding]:
    queries = [
        {"package": {"name": pin.name, "ecosystem": "PyPI"}, "version": pin.version} for pin in pins
    ]
    answer = client.post(f"{url}/querybatch", json={"queries": queries})
    answer.raise_for_status()
    results: list[dict[str, Any]] = answer.json()["results"]
    found = []
    for pin, result in zip(pins, results, strict=True):
        # The batch names ids alone; what they are about is asked for the few there are.
        for vulnerability in result.get("vulns", ()):
            detail = client.get(f"{url}/vulns/{vulnerability['id']}").raise_for_status().json()
            if "withdrawn" not in detail:
                found.append(_finding(pin, detail))
    return found


def _ask_index(client: httpx.Client, url: str, pin: Pin) -> list[Finding] | None:
    """What the index knows of a version; None if it does not say.

    Mirrors that keep only the page of a whole package tell about its newest version.
    """
    for page in (f"{url}/{pin.name}/{pin.version}/json", f"{url}/{pin.name}/json"):
        try:
            answer = client.get(page)
            document = answer.json() if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None
        if document is not None:
            is_ours = document.get("info", {}).get("version") == pin.version
            known = document.get("vulnerabilities")
            if not is_ours or known is None:
                return None
            return [_finding(pin, each) for each in known if not each.get("withdrawn")]
    return None


def _finding(pin: Pin, advisory: Mapping[str, Any]) -> Finding:
    text = advisory.get("summary") or advisory.get("details") or ""
    first = next(iter(text.strip().splitlines()), "")
    return Finding(pin, frozenset({advisory["id"], *advisory.get("aliases", ())}), first)


def index_of_pip() -> str | None:
    """Where the index that pip uses answers in JSON; None if that cannot be told."""
    simple = (
        os.environ.get(INDEX_VARIABLE)
        or _output_of("-m", "pip", "config", "get", INDEX_KEY)
        or _output_of("-c", INDEX_OF_PIP)
    )
    base, found, _ = simple.rstrip("/").rpartition("/simple")
    return f"{base}/pypi" if found else None


def _output_of(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# --- telling --------------------------------------------------------------------------------------


def report(done: Audit, pins: Sequence[Pin], accepted: Iterable[Accepted], *, strict: bool) -> int:
    """Print what was found; the exit code."""
    accepted = list(accepted)
    open_ = [one for one in done.findings if not any(known.covers(one) for known in accepted)]
    for finding in open_:
        print(finding)
    looked_up = {pin.name for pin in pins} - {pin.name for pin in done.unknown}
    for known in accepted:
        if known.package in looked_up and not any(known.covers(one) for one in done.findings):
            print(f"{ACCEPTED.name}: {known.id} of {known.package} applies no more; remove it")
    if not looked_up:
        print("advisories could not be fetched: not audited")
        return int(strict)
    if done.unknown:
        names = [str(pin) for pin in done.unknown]
        more = ", …" if len(names) > NAMES_SHOWN_MAX else ""
        shown = ", ".join(names[:NAMES_SHOWN_MAX]) + more
        print(f"advisories could not be fetched for {len(names)} of {len(pins)} pins: {shown}")
    if open_:
        print(f"move the pin to a version without it, or explain it in {ACCEPTED.name}")
        return 1
    excused = len(done.findings)
    known_ones = f", {excused} explained in {ACCEPTED.name}" if excused else ""
    print(f"{len(looked_up)} pins audited, no open advisory{known_ones}")
    return int(strict and bool(done.unknown))


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit the pins; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail if anything is not audited")
    parser.add_argument("--osv", default=OSV_URL, help="another OSV server")
    parser.add_argument("--index", help="the JSON pages of an index; pip's own by default")
    parser.add_argument("--pins", type=Path, default=PINS)
    parser.add_argument("--accepted", type=Path, default=ACCEPTED)
    given = parser.parse_args(arguments)
    pins = read_pins(given.pins)
    done = audit(pins, given.osv, given.index or index_of_pip())
    return report(done, pins, read_accepted(given.accepted), strict=given.strict)


if __name__ == "__main__":
    sys.exit(main())
