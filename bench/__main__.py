"""`python -m bench [SUITE …] [--scale SCALE]`: measure, show, and keep the record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.circumstances import ROOT
from bench.progress import note
from bench.readme import updated
from bench.record import Record
from bench.report import markdown_page, text_report
from bench.scale import Scale
from bench.suites import SUITES, run_suite

RECORDS = ROOT / "bench" / "records"
README = ROOT / "README.md"
README_SCALE = Scale.SMALL
"""The README shows what everybody can measure again in some minutes."""
ASKED_IN_PART = (["queries"], ["ldbc"], ["spark"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run suites, print and keep their figures; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite '{unknown[0]}'; there is {', '.join(SUITES)}")
    if options.only:
        suite = options.suites or ["queries"]
        if suite not in ASKED_IN_PART:
            parser.error("--only is for one of the suites queries, ldbc and spark")
        return look(suite[0], options.scale, options.only)
    record = Record.kept_in(options.into, options.scale).in_order(SUITES)
    asked = [] if options.render else options.suites or list(SUITES)
    for number, name in enumerate(asked, start=1):
        note(f"[{number}/{len(asked)}] {name} at {options.scale} scale")
        record = record.with_suite(run_suite(name, options.scale)).in_order(SUITES)
        keep(record, options.into)
    if options.render:
        keep(record, options.into)
    suites = [suite for name, suite in record.suites.items() if options.render or name in asked]
    if options.json:
        print(record.to_json(), end="")
    else:
        print("\n".join(text_report(suites)))
    failed = any(suite.failure is not None for suite in suites)
    missed = any(suite.missed for suite in suites)
    return 1 if failed or (options.check and missed) else 0


def look(suite: str, scale: Scale, questions: Sequence[str]) -> int:
    """Measure some questions of a suite. A part of a suite is a look, not a record."""
    found = run_suite(suite, scale, questions)
    print("\n".join(text_report([found])))
    return 0 if found.failure is None else 1


def keep(record: Record, folder: Path) -> None:
    """Write a record with its page, and the README if it shows this one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{record.scale}.json").write_text(record.to_json(), "utf-8")
    (folder / f"{record.scale}.md").write_text(markdown_page(record), "utf-8")
    if folder == RECORDS and record.scale == README_SCALE:
        README.write_text(updated(README.read_text("utf-8"), record), "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Omnigraph beside its peers, and keep the figures as a record.",
    )
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"what to run; all of {', '.join(SUITES)}"
    )
    parser.add_argument(
        "--scale", type=Scale, choices=list(Scale), default=Scale.SMALL, help="how much to measure"
    )
    parser.add_argument(
        "--into", type=Path, default=RECORDS, help="another folder leaves the kept records alone"
    )
    parser.add_argument(
        "--render", action="store_true", help="measure nothing: write the tables of the record anew"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="QUESTION",
        help="ask some questions of the suite queries or ldbc, or measure some parts of spark"
        " (frames, cores, memory), and keep no record",
    )
    parser.add_argument("--json", action="store_true", help="print the record")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
