"""`python -m bench [SUITE …] [--quick] [--json] [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from bench.record import document
from bench.report import report
from bench.suites import SUITES, run_suite


def main(argv: Sequence[str] | None = None) -> int:
    """Run suites and print their figures; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite '{unknown[0]}'; there is {', '.join(SUITES)}")
    records = [run_suite(name, quick=options.quick) for name in options.suites or SUITES]
    if options.json:
        print(json.dumps(document(records), indent=2, ensure_ascii=False))
    else:
        print("\n".join(report(records)))
    missed = any(figure.is_met is False for record in records for figure in record.figures)
    return 1 if options.check and missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Omnigraph.")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"what to run; all of {', '.join(SUITES)}"
    )
    parser.add_argument("--quick", action="store_true", help="measure less: rough figures, sooner")
    parser.add_argument("--json", action="store_true", help="print records as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
