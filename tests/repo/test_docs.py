"""What the documents say exists, exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, files_with, relative

DOCUMENTS = files_with(".md")
COMMANDS = ROOT / "colibri_cli" / "commands"


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def shell_lines(path: Path) -> list[str]:
    blocks = code_blocks(path.read_text(encoding="utf-8"))
    return [line.strip() for block in blocks for line in block.splitlines()]


def anchors(path: Path) -> set[str]:
    """Return the fragments that headings of a document get."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), f"{relative(path)} links to {target}"
        if fragment and linked.suffix == ".md":
            assert fragment in anchors(linked), f"{relative(path)} links to {target}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_and_scripts_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for line in shell_lines(ROOT / name):
        if made := re.match(r"make (\S+)", line):
            assert made[1] in targets, line
        if script := re.match(r"(scripts/\S+)", line):
            assert (ROOT / script[1]).is_file(), line


def test_every_make_target_is_explained_by_make_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) - {"help"}
    explained = set(re.findall(r'@echo "make ([a-z-]+)', makefile))
    assert explained == targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_coli_commands_exist(path: Path) -> None:
    plugins = (ROOT / "plugins" / "colibri_plugins").glob("*.py")
    files = [*COMMANDS.glob("*.py"), *plugins]
    known = {file.stem.rstrip("_").replace("_", "-") for file in files}
    for line in shell_lines(path):
        if used := re.match(r"(?:\$ )?coli ([a-z]\w*)", line):
            assert used[1] in known, f"{relative(path)}: {line}"


def test_the_changelog_knows_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.search(
        rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )


def test_the_readme_has_its_sample() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    sample = re.search(r"<!-- sample: begin .*?-->\n(.*?)<!-- sample: end -->", text, re.DOTALL)
    assert sample is not None
    assert sample[1].strip(), "paste the output of a real run between the sample marks"


def test_the_page_of_the_regression_harness_lists_its_figures() -> None:
    from colibri_cli.diag.metrics import METRICS

    text = (ROOT / "docs" / "diag.md").read_text(encoding="utf-8")
    for name, metric in METRICS.items():
        row = re.search(rf"^\| `{re.escape(name)}` \| .* \| (\S+)(?: %)? \|$", text, re.MULTILINE)
        assert row is not None, name
        assert float(row[1]) == metric.tolerance * (100 if metric.is_share else 1), name


def test_the_page_of_commands_has_every_command_with_an_example() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \| .+ \| `coli ([a-z-]+)\b.*` \|$", text, re.MULTILINE)
    assert all(name == used for name, used in listed)
    names = sorted(file.stem.replace("_", "-") for file in COMMANDS.glob("[a-z]*.py"))
    assert sorted(name for name, _ in listed) == names
