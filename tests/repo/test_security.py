"""What the security page claims has its test, and what it rules out is nowhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.repo.tree import ROOT, module_name, package_modules, relative

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
THREATS = re.findall(r"^\| ([^|`]+) \| ([^|]+) \| [^|]+ \| `([^`|]+)` \|$", PAGE, re.MULTILINE)

# Modules whose reading a file can run code in it.
DANGEROUS = {"pickle", "marshal", "shelve", "dill", "joblib", "torch", "yaml"}


@pytest.mark.parametrize(("origin", "what", "test"), THREATS)
def test_a_threat_names_a_test_that_exists(origin: str, what: str, test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in names, f"{origin}, {what}: {test}"


def test_every_kind_of_attacker_is_on_the_page() -> None:
    origins = {origin for origin, _, _ in THREATS}
    assert {"network client", "web page in the browser", "model file", "plugin", "template"} <= (
        origins
    )


def test_nothing_that_runs_code_reads_files() -> None:
    found = []
    for path in package_modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"eval", "exec"}:
                found.append(f"{relative(path)}:{node.lineno} evaluates code")
            found += [module_name(path) for name in names if name.split(".")[0] in DANGEROUS]
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant)
                assert node.value.value is False, relative(path)
    assert found == []


def test_the_bill_of_materials_lists_what_is_required(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    import json

    folder = tmp_path_factory.mktemp("sbom")
    command = [sys.executable, str(ROOT / "scripts" / "sbom"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    bill = json.loads((folder / "sbom.cdx.json").read_text(encoding="utf-8"))
    names = {component["name"].lower() for component in bill["components"]}
    assert {"h11", "numpy", "jinja2", "markupsafe"} <= names
    references = {component["bom-ref"] for component in bill["components"]}
    references.add(bill["metadata"]["component"]["bom-ref"])
    assert len(references) == len(bill["components"]) + 1
    for entry in bill["dependencies"]:
        assert {entry["ref"], *entry.get("dependsOn", ())} <= references
    lines = (folder / "licenses.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(references)
    assert not [line for line in lines if line.endswith("not named")]
