"""The wheel and the source archive: what is in them, and that they work where nothing else is.

The clean environment has the wheel and the packages that the plain install asks for, and knows
neither this checkout nor its tools. The packages are links to those that are installed here, so
nothing is downloaded.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shlex
import signal
import subprocess
import sys
import tarfile
from base64 import urlsafe_b64encode
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from packaging.metadata import Metadata
from trove_classifiers import classifiers

import omnigraph
from docs.generators.licences import declared, installed_with
from studio.build import PAGE
from studio.build import build as build_page
from tests.support.environments import ROOT, build, install, new_environment, run

# One worker builds the wheel and the environment.
pytestmark = pytest.mark.xdist_group("distributions")

PACKAGES = ("omnigraph", "pyspark_omnigraph")
BLOCK = re.compile(r"^```(?P<language>python|text)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMIT_ID = re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b")
"""Differs from run to run."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive."""
    build_page()
    wheel, archive = build(ROOT, tmp_path_factory.mktemp("dist"), "wheel", "sdist")
    return wheel, archive


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with a plain install of the wheel."""
    return installed(built[0], tmp_path_factory.mktemp("clean") / "env")


def installed(wheel: Path, place: Path, *extras: str) -> Path:
    """The programs of a new environment with the wheel, and what it and its extras ask for."""
    python = new_environment(place)
    wanted = [*declared(), *(each for extra in extras for each in declared(extra))]
    install(python, installed_with(wanted), wheel)
    return python.parent


ADDRESS = re.compile(r"Studio is at (?P<url>http://127\.0\.0\.1:\d+)/studio/#code=(?P<code>[^&]+)&")


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as opened:
        return set(opened.namelist())


def test_the_wheel_holds_every_module_the_types_and_the_licence(built: tuple[Path, Path]):
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.suffix in (".py", ".pg")
        or path.name in ("py.typed", "commands.json")
        or path.parent == PAGE
    }
    page = {f"omnigraph/server/page/{name}" for name in ("index.html", "THIRD-PARTY.txt")}
    assert {"omnigraph/py.typed", *page} <= expected
    inside = names_in(built[0])
    about = f"omnigraph-{omnigraph.__version__}.dist-info"
    assert {name for name in inside if not name.startswith(about)} == expected
    assert f"{about}/licenses/LICENSE" in inside


def test_the_version_has_one_home_and_a_place_in_the_changelog(built: tuple[Path, Path]):
    version = omnigraph.__version__
    with ZipFile(built[0]) as opened:
        about = message_from_bytes(opened.read(f"omnigraph-{version}.dist-info/METADATA"))
    assert about["Version"] == version
    assert about["License-Expression"] == "MIT"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE)


def test_the_metadata_of_both_are_valid_for_an_index(built: tuple[Path, Path]):
    """What `twine check` and an index would refuse: fields, classifiers, the description."""
    version = omnigraph.__version__
    with ZipFile(built[0]) as opened:
        of_wheel = opened.read(f"omnigraph-{version}.dist-info/METADATA")
        tags = opened.read(f"omnigraph-{version}.dist-info/WHEEL").decode()
        entries = opened.read(f"omnigraph-{version}.dist-info/entry_points.txt").decode()
        recorded = opened.read(f"omnigraph-{version}.dist-info/RECORD").decode()
        for name, digest, size in csv.reader(recorded.splitlines()):
            if name.endswith("/RECORD"):
                continue
            data = opened.read(name)
            found = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(data)), name
    with tarfile.open(built[1]) as archive:
        member = archive.extractfile(f"omnigraph-{version}/PKG-INFO")
        assert member is not None and member.read() == of_wheel
    about = Metadata.from_email(of_wheel, validate=True)
    assert (about.name, str(about.version)) == ("omnigraph", version)
    assert about.description_content_type == "text/markdown"
    assert about.description and about.description.startswith("# Omnigraph")
    assert about.summary and len(about.summary) < 512 and "\n" not in about.summary
    assert set(about.classifiers or ()) <= classifiers
    assert about.requires_python is not None and "3.11" in about.requires_python
    asked = {
        extra
        for requirement in about.requires_dist or ()
        for extra in re.findall(r"extra == ['\"](\w+)['\"]", str(requirement))
    }
    assert asked == set(about.provides_extra or ())
    assert "Root-Is-Purelib: true" in tags and "Tag: py3-none-any" in tags
    assert "omnigraph = omnigraph.cli.main:main" in entries


def test_the_source_archive_has_what_is_committed_and_the_page_alone(built: tuple[Path, Path]):
    with tarfile.open(built[1]) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    known = set(run("git", "ls-files", cwd=ROOT).splitlines())
    made = {"PKG-INFO", ".gitignore"}
    page = {f"src/omnigraph/server/page/{path.name}" for path in PAGE.iterdir()}
    assert names - known - made - page == set()
    for needed in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "CHANGELOG.md"):
        assert needed in names


def test_the_lines_of_the_page_about_installing_work_for_this_wheel(
    built: tuple[Path, Path], environment: Path, tmp_path: Path
):
    """Each names a wheel as pip, pipx and uv take it; here without what it depends on."""
    page = (ROOT / "docs" / "guide" / "install.md").read_text(encoding="utf-8")
    lines = [line for block in SHELL.findall(page) for line in block.splitlines()]
    (tmp_path / "dist").symlink_to(built[0].parent)
    tried = 0
    for line in lines:
        words = shlex.split(line)
        (*_, wheel) = [word for word in words if ".whl" in word] or [""]
        if not wheel:
            continue
        tried += 1
        assert wheel.partition("[")[0] == f"./dist/{built[0].name}", "the page has this version"
        dry = ("install", "--dry-run", "--quiet", "--no-deps", "--no-index", "--ignore-installed")
        python = environment / "python"
        run(sys.executable, "-m", "pip", "--python", python, *dry, wheel, cwd=tmp_path)
    assert tried == 5
    extras = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    with ZipFile(built[0]) as opened:
        name = f"omnigraph-{omnigraph.__version__}.dist-info/METADATA"
        offered = set(Metadata.from_email(opened.read(name)).provides_extra or ())
    assert extras == offered - {"bench", "dev"}


def test_a_missing_extra_names_a_command_that_installs_it_from_the_wheel(
    built: tuple[Path, Path], environment: Path, tmp_path: Path
):
    done = subprocess.run(
        [environment / "omnigraph", "lsp"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    command = f"pip install 'omnigraph[lsp] @ {built[0].as_uri()}'"
    assert f"hint: install it with `{command}`" in done.stderr
    dry = ("--dry-run", "--quiet", "--no-deps", "--no-index", "--ignore-installed")
    _, verb, requirement = shlex.split(command)
    python = environment / "python"
    run(sys.executable, "-m", "pip", "--python", python, verb, *dry, requirement, cwd=tmp_path)


def test_the_source_archive_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path):
    with tarfile.open(built[1]) as opened:
        opened.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    (again,) = build(unpacked, tmp_path / "again", "wheel")
    with ZipFile(built[0]) as first, ZipFile(again) as second:
        assert set(first.namelist()) == set(second.namelist())
        assert all(first.read(name) == second.read(name) for name in first.namelist())


def test_a_clean_environment_has_the_programs_in_the_version_of_the_wheel(
    environment: Path, tmp_path: Path
):
    find = "from importlib.util import find_spec; print([n for n in {} if find_spec(n)])"
    strangers = ("cedarpy", "pyspark", "pytest", "ulid", "uvicorn")
    assert run(environment / "python", "-c", find.format(strangers), cwd=tmp_path) == "[]\n"
    line = f"omnigraph {omnigraph.__version__}\n"
    assert run(environment / "omnigraph", "--version", cwd=tmp_path) == line
    place = run(
        environment / "python", "-c", "import omnigraph; print(omnigraph.__file__)", cwd=tmp_path
    )
    assert Path(place.strip()).is_relative_to(environment.parent)
    assert "Usage: omnigraph serve" in run(environment / "omnigraph-server", "--help", cwd=tmp_path)


def test_the_wheel_answers_the_first_example_of_the_readme(environment: Path, tmp_path: Path):
    blocks = list(BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8")))
    first = next(at for at, block in enumerate(blocks) if block["language"] == "python")
    program = tmp_path / "first.py"
    program.write_text(blocks[first]["text"], encoding="utf-8")
    assert blocks[first + 1]["language"] == "text", "the example is followed by what it prints"
    printed = run(environment / "python", program, cwd=tmp_path)
    shown = blocks[first + 1]["text"]
    assert COMMIT_ID.sub("ID", printed).splitlines() == COMMIT_ID.sub("ID", shown).splitlines()


def test_c_stu_011_an_installed_wheel_opens_studio_without_node(
    built: tuple[Path, Path], tmp_path: Path
):
    programs = installed(built[0], tmp_path / "env", "server")
    (tmp_path / "team.pg").write_text("node Person { name: String @key }")
    run(programs / "omnigraph", "init", "--schema", "team.pg", "team.omni", cwd=tmp_path)
    settings = {"PATH": str(programs), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    studio = subprocess.Popen(
        [programs / "omnigraph", "studio", "team.omni", "--no-open"],
        cwd=tmp_path,
        env=settings,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert studio.stdout is not None
        found = ADDRESS.match(studio.stdout.readline())
        assert found is not None
        page = httpx.get(f"{found['url']}/studio/").text
        script = re.search(r'src="\./(.+?\.js)"', page)
        assert script is not None
        assert httpx.get(f"{found['url']}/studio/{script[1]}").status_code == 200
        session = httpx.post(f"{found['url']}/session", json={"code": found["code"]}).json()
        headers = {"Authorization": f"Bearer {session['token']}"}
        types = httpx.get(f"{found['url']}/graphs/default/schema/types", headers=headers).json()
        assert [each["name"] for each in types["types"]] == ["Person"]
        studio.send_signal(signal.SIGINT)
        assert studio.wait(60) == 0
    finally:
        studio.kill()
        studio.communicate()
