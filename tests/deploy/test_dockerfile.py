"""The image: what it is made of, who runs in it, and that it can be built from what is sent."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy import entrypoint
from tests.deploy.launch import DEPLOY, ROOT

SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|ACCESS_KEY")
IGNORED = [
    line
    for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    if line and not line.startswith("#")
]


@dataclass(frozen=True)
class Step:
    """One instruction."""

    word: str
    rest: str

    @property
    def operands(self) -> list[str]:
        return [each for each in self.rest.split() if not each.startswith("--")]


def steps() -> list[Step]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def stages() -> list[list[Step]]:
    parts: list[list[Step]] = []
    for step in steps():
        if step.word == "FROM":
            parts.append([])
        parts[-1].append(step)
    return parts


def only(word: str, stage: list[Step]) -> Step:
    (found,) = (step for step in stage if step.word == word)
    return found


def variables(stage: list[Step]) -> dict[str, str]:
    return dict(
        pair.split("=", 1) for step in stage if step.word == "ENV" for pair in step.rest.split()
    )


def copied_from_here() -> list[str]:
    """Every file or folder of the repository that gets into a stage."""
    return [
        source
        for step in steps()
        if step.word == "COPY" and "--from=" not in step.rest
        for source in step.operands[:-1]
    ]


def is_sent(path: str) -> bool:
    """Whether the builder sees a file. The last rule that speaks of it, or of a folder above it."""
    parts = path.split("/")
    above = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    sent = True
    for line in IGNORED:
        pattern = line.removeprefix("!")
        anywhere = pattern.removeprefix("**/")
        names = above if anywhere == pattern else parts
        if pattern == "*" or anywhere in names:
            sent = line.startswith("!")
    return sent


def test_there_are_two_stages_of_one_slim_image_without_a_registry():
    bases = [step.operands[0] for step in steps() if step.word == "FROM"]
    assert len(bases) == 2 and len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+-slim", bases[0])


def test_python_is_one_that_the_package_supports_and_the_newest_tested_pins_allow():
    version = re.search(r"python:(3\.\d+)", steps()[0].rest)
    assert version is not None
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"Programming Language :: Python :: {version[1]}" in project


def test_packages_are_installed_with_the_pins():
    installs = [step.rest for step in steps() if "pip install" in step.rest]
    assert len(installs) == 1
    assert "PIP_CONSTRAINT=/source/constraints.txt" in installs[0]
    assert "PIP_BUILD_CONSTRAINT=/source/constraints.txt" in installs[0]
    assert "--constraint constraints.txt" in installs[0]
    extras = re.search(r"\.\[([a-z,]+)\]", installs[0])
    assert extras is not None and {"server", "policy"} <= set(extras[1].split(","))
    assert "spark" not in extras[1]


def test_the_server_runs_as_a_user_without_rights():
    last = stages()[-1]
    assert only("USER", last).rest == "10001:10001"
    after = [step.word for step in last][[step.word for step in last].index("USER") :]
    assert not {"RUN", "COPY"} & set(after), "nothing is added once root was left"
    assert "OMNIGRAPH_ACCEPT" not in variables(last)


def test_the_command_is_a_program_and_no_shell():
    last = stages()[-1]
    assert json.loads(only("ENTRYPOINT", last).rest) == ["omnigraph-entrypoint"]
    assert [step for step in last if step.word == "CMD"] == []
    copy = next(step for step in last if "deploy/entrypoint.py" in step.rest)
    assert copy.operands[-1] == "/usr/local/bin/omnigraph-entrypoint"
    assert "--chmod=0555" in copy.rest
    assert only("STOPSIGNAL", last).rest == "SIGTERM"


def test_the_health_check_asks_whether_the_server_is_ready():
    check = only("HEALTHCHECK", stages()[-1]).rest
    command = json.loads(check[check.index("[") :])
    assert command == ["omnigraph-entrypoint", "--ready"]
    timeout = re.search(r"--timeout=(\d+)s", check)
    assert timeout is not None and float(timeout[1]) > entrypoint.READY_SECONDS


def test_settings_of_the_image_are_settings_and_its_default_is_refused_without_tokens():
    known = variables(stages()[-1])
    ours = {name: value for name, value in known.items() if name.startswith("OMNIGRAPH_")}
    assert set(ours) <= entrypoint.SETTINGS
    told = [each.error for each in entrypoint.problems(ours, [], user=10001)]
    assert any("no tokens" in each for each in told)
    opened = ours | {"OMNIGRAPH_UNAUTHENTICATED": "1"}
    told = [each.error for each in entrypoint.problems(opened, [], user=10001)]
    assert any("let in every client" in each for each in told)
    port = ours["OMNIGRAPH_BIND"].rpartition(":")[2]
    assert only("EXPOSE", stages()[-1]).rest == port


def test_no_secret_and_nothing_from_the_network_gets_into_a_layer():
    assert [step for step in steps() if step.word in ("ADD", "ARG")] == []
    for stage in stages():
        assert [name for name in variables(stage) if SECRET_NAME.search(name)] == []
    for step in steps():
        assert not re.search(r"https?://|curl |wget ", step.rest), step


@pytest.mark.parametrize("source", copied_from_here())
def test_what_is_copied_exists_and_is_sent(source: str):
    assert (ROOT / source).exists()
    assert is_sent(source)


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".env", "tests/conftest.py", "deploy/secrets/tokens.json"),
        *("deploy/compose.yaml", "team.omni/_schema.pg", "src/omnigraph/__pycache__/x.pyc"),
    ],
)
def test_nothing_else_is_sent(path: str):
    assert not is_sent(path)


def test_the_package_can_be_built_from_what_is_copied(tmp_path: Path):
    """The first stage, as far as it goes without a network."""
    for source in copied_from_here():
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").glob("omnigraph-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "omnigraph/server/run.py" in names and "omnigraph/py.typed" in names
