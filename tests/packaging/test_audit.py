"""`make audit`: findings fail, silence does not pass for a clean result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.packaging import audit
from tests.packaging.audit import Pin

NOBODY = "http://127.0.0.1:9"
"""Nothing listens there."""

BAD = Pin("jinja2", "3.1.6")
ADVISORY = {"id": "PYSEC-2026-7", "aliases": ["CVE-2026-7"], "summary": "Templates escape"}
EXCUSE = """
[[accepted]]
id = "CVE-2026-7"
package = "jinja2"
reason = "no template of ours comes from outside"
date = 2026-11-01
"""


@contextmanager
def service(pages: Mapping[str, Any]) -> Iterator[str]:
    """A server with these JSON pages, and an OSV that finds one bad version."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(pages.get(self.path))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = [
                {"vulns": [{"id": ADVISORY["id"]}]}
                if Pin(query["package"]["name"], query["version"]) == BAD
                else {}
                for query in asked["queries"]
            ]
            self._answer({"results": found} if self.path in pages else None)

        def _answer(self, document: Any) -> None:
            content = json.dumps(document).encode()
            self.send_response(200 if document is not None else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def osv_pages() -> dict[str, Any]:
    return {"/querybatch": {}, "/vulns/PYSEC-2026-7": ADVISORY}


def index_pages(version: str = BAD.version) -> dict[str, Any]:
    """An index that has only the page of a whole package, as some mirrors do."""
    newest = {"info": {"version": version}, "vulnerabilities": [ADVISORY]}
    return {f"/{BAD.name}/json": newest}


class Desk:
    """Audits two pins, and keeps a list of accepted advisories."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._pins, self.accepted = folder / "constraints.txt", folder / "advisories.toml"
        self._pins.write_text(f"anyio==4.16.0\n{BAD.name}=={BAD.version}\n")
        self.accepted.touch()

    def audit(self, *arguments: str, osv: str = NOBODY, index: str = NOBODY) -> tuple[int, str]:
        """The exit code and what was printed."""
        files = ["--pins", str(self._pins), "--accepted", str(self.accepted)]
        code = audit.main(["--osv", osv, "--index", index, *files, *arguments])
        return code, self._capsys.readouterr().out


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def test_an_advisory_fails_the_audit_and_says_what_to_do(desk: Desk):
    with service(osv_pages()) as url:
        code, said = desk.audit(osv=url)
    assert code == 1
    assert said.splitlines() == [
        "jinja2 3.1.6: CVE-2026-7, PYSEC-2026-7: Templates escape",
        "move the pin to a version without it, or explain it in advisories.toml",
    ]


def test_an_advisory_that_is_explained_passes(desk: Desk):
    desk.accepted.write_text(EXCUSE)
    with service(osv_pages()) as url:
        code, said = desk.audit("--strict", osv=url)
    assert code == 0
    assert said == "2 pins audited, no open advisory, 1 explained in advisories.toml\n"


def test_an_explanation_that_is_not_needed_any_more_is_told(desk: Desk):
    desk.accepted.write_text(EXCUSE.replace("CVE-2026-7", "CVE-2020-1"))
    with service(osv_pages()) as url:
        code, said = desk.audit(osv=url)
    assert code == 1 and "CVE-2020-1 of jinja2 applies no more; remove it" in said


def test_without_a_service_one_line_says_so_and_only_strict_fails(desk: Desk):
    line = "advisories could not be fetched: not audited\n"
    assert desk.audit() == (0, line)
    assert desk.audit("--strict") == (1, line)


def test_without_osv_the_index_is_asked_and_what_it_does_not_know_is_named(desk: Desk):
    with service(index_pages()) as url:
        code, said = desk.audit(index=url)
    assert code == 1 and "jinja2 3.1.6: CVE-2026-7" in said
    assert "advisories could not be fetched for 1 of 2 pins: anyio 4.16.0" in said


def test_an_index_that_tells_of_another_version_has_told_nothing(desk: Desk):
    with service(index_pages("3.2.0")) as url:
        assert desk.audit(index=url) == (0, "advisories could not be fetched: not audited\n")


def test_a_part_that_could_not_be_audited_fails_only_the_strict(desk: Desk):
    desk.accepted.write_text(EXCUSE)
    with service(index_pages()) as url:
        assert [desk.audit(index=url)[0], desk.audit("--strict", index=url)[0]] == [0, 1]


def test_every_accepted_advisory_of_ours_is_about_a_pin_and_says_why():
    pinned = {pin.name for pin in audit.read_pins(audit.PINS)}
    for entry in audit.read_accepted(audit.ACCEPTED):
        assert entry.package in pinned and entry.reason.strip() and entry.date.year > 2000
