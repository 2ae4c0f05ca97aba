"""`python -m bench [SUITE …] [--quick] [--json] [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from bench.record import Figure, SuiteRecord, document, machine
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
        print("\n".join(_report(records)))
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


def _report(records: Sequence[SuiteRecord]) -> Iterator[str]:
    where = machine()
    yield f"{where['processor']}, {where['cores']} cores, Python {sys.version.split()[0]}"
    if where["load"] is not None and where["load"] > 1:
        yield f"the machine is busy (load {where['load']:g}): expect worse figures than it can do"
    for record in records:
        yield ""
        yield record.suite
        width = max(len(figure.name) for figure in record.figures)
        for figure in record.figures:
            yield f"  {figure.name:<{width}}  {_shown(figure)}".rstrip()


def _shown(figure: Figure) -> str:
    value = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.3g}"
    text = f"{value:>10} {figure.unit:<10}"
    if figure.target is not None:
        verdict = "pass" if figure.is_met else "MISS"
        text += f"  {verdict}: {figure.target.direction} {figure.target.bound:g}"
    return text + (f"  ({figure.note})" if figure.note else "")


if __name__ == "__main__":
    sys.exit(main())
