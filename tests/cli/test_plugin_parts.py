"""What installed plugins add beside commands: each hook with a package that uses it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.quant.base import FloatTensor, QuantFormat
from colibri_engine.quant.registry import FORMATS
from tests.fakes.fake_engine import TEMPLATE
from tests.fakes.plugin_package import install_plugin
from tests.fakes.tiny_checkpoint import write_hf
from tests.fakes.tiny_gguf import write_gguf_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e

PARTS = '''
"""One of each kind that the command line looks up."""

import shutil
from colibri_cli.plugin_api import Tool, hookimpl

@hookimpl
def register_bench_tasks(register):
    register("colours", lambda: [
        {"ctx": "The sky is", "choices": [" blue", " zzz"], "gold": 0},
        {"ctx": "Grass is", "choices": [" qqq", " green"], "gold": 1},
    ])
    register("broken", lambda: 1 / 0)

@hookimpl
def register_model_sources(register):
    def fetch(what, folder, tell):
        shutil.copytree(what, folder, dirs_exist_ok=True)
        tell("copying", 1, 1)
    register("copy", fetch)
    register("nothing", lambda what, folder, tell: None)

@hookimpl
def register_converters(register):
    register("renamed", lambda what, folder: shutil.copytree(what, folder, dirs_exist_ok=True))

@hookimpl
def register_template_loaders(register):
    register("team", lambda name: f"prompt = '[[echo]] {name}: $input'")

@hookimpl
def register_tools(register):
    register(Tool("shout", "Says it louder.", lambda arguments: arguments["text"].upper(),
                  {"type": "object", "properties": {"text": {"type": "string"}}}))

@hookimpl
def register_views(register):
    register("My figures", lambda figures: [f"status {figures['health']['status']}"])
    register("Bad figures", lambda figures: 1 / 0)
'''

ARCHITECTURE = """
from colibri_cli.plugin_api import hookimpl

@hookimpl
def register_model_architectures(register):
    register("toy_llama", "toy_model")
"""
TOY_MODEL = '''
"""A llama by another name, whose logits are the other way round."""

import numpy as np
from colibri_engine.models import llama
from colibri_engine.models.llama import Config, cache_layouts

class Model(llama.Model):
    def forward(self, ids, batch, logit_rows):
        return np.negative(super().forward(ids, batch, logit_rows))
'''

FORMAT = """
from colibri_cli.plugin_api import hookimpl

@hookimpl
def register_quant_formats(register):
    register("tq2_0", "toy_format")
"""
TOY_FORMAT = '''
"""TQ2_0: ternary, w = d * (q - 1); blocks of 256 in 66 bytes: 64 of 2 bits, d f16."""

import numpy as np
from colibri_engine.quant.base import FloatTensor, QuantFormat

def unpack(raw):
    blocks = raw.reshape(raw.shape[0], -1, 66)
    packed = blocks[..., :64].reshape(*blocks.shape[:2], 2, 1, 32)
    q = packed >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    d = np.ascontiguousarray(blocks[..., 64:]).view(np.float16).astype(np.float32)
    values = (q.reshape(*blocks.shape[:2], 256).astype(np.float32) - 1) * d
    return values.reshape(raw.shape[0], -1)

FORMAT = QuantFormat("tq2_0", 256, 66, unpack, lambda raw: FloatTensor(unpack(raw)))
'''


@dataclass
class Installing:
    """Installs packages for one `coli`, and removes them."""

    coli: CommandLine
    sites: list[Path]

    def add(self, name: str, modules: Mapping[str, str]) -> None:
        self.use([*self.sites, install_plugin(self.coli.home / "packages", name, modules)])

    def remove_all(self) -> None:
        self.use([])

    def use(self, sites: list[Path]) -> None:
        self.sites = sites
        self.coli.variables.pop("PYTHONPATH", None)
        known = self.coli.environment["PYTHONPATH"]
        self.coli.variables["PYTHONPATH"] = os.pathsep.join([*map(str, self.sites), known])


@pytest.fixture
def packages(coli: CommandLine) -> Installing:
    return Installing(coli, [])


@pytest.fixture(scope="module")
def parts_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_plugin(tmp_path_factory.mktemp("parts"), "parts", {"coli_parts": PARTS})


@pytest.fixture
def parts(packages: Installing, parts_site: Path) -> Installing:
    packages.use([parts_site])
    return packages


def test_a_task_is_scored_beside_our_own(parts: Installing, tmp_path: Path) -> None:
    model, coli = write_hf(tmp_path / "tiny").path, parts.coli
    ask = ("bench", "quality", "colours", "--model", str(model), "--json")
    done = coli.run(*ask)
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert (task["task"], task["n"]) == ("colours", 2)
    done = coli.run("bench", "quality", "broken", "--model", str(model))
    assert (done.returncode, done.stdout) == (2, "")
    assert "the plugin parts failed: ZeroDivisionError" in done.stderr
    parts.remove_all()
    assert "the task colours is left out" in coli.run(*ask).stderr


def test_a_model_is_fetched_by_scheme_and_kept_whole_or_not_at_all(
    parts: Installing, tmp_path: Path
) -> None:
    source, coli = write_hf(tmp_path / "far" / "mine", "glm4_moe").path, parts.coli
    done = coli.run("pull", f"copy:{source}", "--json")
    assert done.returncode == 0, done.stderr
    pulled = json.loads(done.stdout)
    assert (pulled["name"], pulled["family"]) == ("mine", "glm4_moe")
    (listed,) = json.loads(coli.run("list", "--json").stdout)["models"]
    assert listed["name"] == "mine"
    assert coli.run("run", "--model", "mine", "--max-tokens", "2", "hi").returncode == 0
    done = coli.run("pull", "nothing:x")
    assert (done.returncode, "cannot be loaded" in done.stderr) == (1, True)
    assert "copy:WHAT" in coli.run("pull", "elsewhere:x").stderr
    assert coli.run("pull", f"copy:{source}", "--name", "demo").returncode == 2
    assert len(json.loads(coli.run("list", "--json").stdout)["models"]) == 1
    parts.remove_all()
    assert coli.run("pull", "copy:x").returncode == 2


def test_a_foreign_checkpoint_is_converted_with_all_options(
    parts: Installing, tmp_path: Path
) -> None:
    source, coli = write_hf(tmp_path / "source", "glm4_moe").path, parts.coli
    done = coli.run("convert", f"renamed:{source}", "--out", "made", "--ebits", "8", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["converted"] is True
    assert coli.run("run", "--model", "made", "--max-tokens", "2", "hi").returncode == 0
    assert [path.name for path in coli.home.glob(".coli-*")] == []
    parts.remove_all()
    assert coli.run("convert", f"renamed:{source}", "--out", "other").returncode != 0


def test_a_template_is_found_by_scheme(parts: Installing, served: CommandLine) -> None:
    served.variables["PYTHONPATH"] = parts.coli.variables["PYTHONPATH"]
    done = served.run("run", "-t", "team:short", "hello")
    assert (done.returncode, "short: hello\n" in done.stdout) == (0, True), done
    done = served.run("run", "-t", "tean:short", "hello")
    assert (done.returncode, "did you mean team:short?" in done.stderr) == (2, True)


def test_a_tool_is_called_by_the_model_and_answers_it(
    parts: Installing, served: CommandLine
) -> None:
    served.variables["PYTHONPATH"] = parts.coli.variables["PYTHONPATH"]
    hermes = '{{ tools }} <tool_call>{"name": "x", "arguments": {}}</tool_call>'
    model = {"chat_template": hermes + TEMPLATE}
    served.variables["FAKE_ENGINE"] = json.dumps({"model": model})
    call = '<tool_call>{"name": "shout", "arguments": {"text": "hello"}}</tool_call>'
    lines = f"[[json {json.dumps(call)}]]\ny\n"
    done = served.run("chat", "--tool", "shout", stdin=lines)
    assert done.returncode == 0, done.stderr
    assert 'wants to call shout(text="hello")' in done.stderr
    assert "shout: HELLO" in done.stderr
    assert "<tool_call>" not in done.stdout
    done = served.run("chat", "--tool", "shuot", stdin="hi\n")
    assert (done.returncode, "did you mean shout?" in done.stderr) == (2, True)
    done = served.run("chat", stdin=f"[[json {json.dumps(call)}]]\n")
    assert "shout" not in done.stderr


def test_views_stand_in_the_picture_and_a_broken_one_says_so(
    parts: Installing, served: CommandLine
) -> None:
    served.variables["PYTHONPATH"] = parts.coli.variables["PYTHONPATH"]
    process = served.start("serve", "--port", "0", "--plain")
    try:
        assert process.stderr is not None
        line = ""
        while "listening on" not in line:
            line = process.stderr.readline().decode()
            assert line, "the server ended"
        url = line.partition("listening on ")[2].partition(";")[0].strip()
        shown = served.run("top", "--once", "--url", url)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert shown.returncode == 0, shown.stderr
    assert "My figures\n  status " in shown.stdout
    assert "Bad figures\n  the plugin parts failed: ZeroDivisionError" in shown.stdout


def answer(coli: CommandLine, model: Path) -> dict[str, Any]:
    done = coli.run(
        "run", "--model", str(model), "--json", "--max-tokens", "4", "--temp", "0", "hi"
    )
    assert done.returncode == 0, done.stderr
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def test_an_architecture_runs_in_the_engine(packages: Installing, tmp_path: Path) -> None:
    coli, model = packages.coli, write_hf(tmp_path / "toy").path
    plain = answer(coli, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "toy_llama"}))
    refused = coli.run("run", "--model", str(model), "hi")
    assert (refused.returncode, "'toy_llama'" in refused.stderr) == (3, True)
    packages.add("toy", {"coli_toy": ARCHITECTURE, "toy_model": TOY_MODEL})
    assert answer(coli, model)["text"] != plain["text"]  # the likeliest there is the unlikeliest
    info = json.loads(coli.run("info", "--model", str(model), "--json").stdout)
    assert "toy_llama" in json.dumps(info)


SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
}


def test_a_number_format_is_read_by_the_engine(
    packages: Installing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope: dict[str, Any] = {}
    exec(TOY_FORMAT, scope)  # the same code the package has

    def pack(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        blocks = values.reshape(values.shape[0], -1, 256)
        d = np.abs(blocks).max(axis=2, keepdims=True).astype(np.float16)
        q = np.rint(blocks / np.where(d == 0, 1, d).astype(np.float32)).astype(np.int8) + 1
        planes = q.astype(np.uint8).reshape(*blocks.shape[:2], 2, 4, 32)
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        packed = np.bitwise_or.reduce(planes << shifts, axis=3).reshape(*blocks.shape[:2], 64)
        raw = np.concatenate([packed, d.view(np.uint8).reshape(*blocks.shape[:2], 2)], axis=2)
        return np.ascontiguousarray(raw.reshape(values.shape[0], -1))

    number_format = QuantFormat(
        "tq2_0", 256, 66, scope["unpack"], lambda raw: FloatTensor(scope["unpack"](raw)), pack
    )
    monkeypatch.setitem(FORMATS, "tq2_0", number_format)
    path = tmp_path / "ternary.gguf"
    write_gguf_model(path, "llama", type_name="TQ2_0", **SIZES)
    coli = packages.coli
    refused = coli.run("run", "--model", str(path), "hi")
    assert (refused.returncode, "TQ2_0" in refused.stderr) == (3, True)
    packages.add("ternary", {"coli_ternary": FORMAT, "toy_format": TOY_FORMAT})
    assert answer(coli, path)["text"]


RUN = ("run", "-t", "team:short", "hello")
BROKEN = [
    (
        {"coli_bad": ARCHITECTURE.replace("toy_model", "no_such_module")},
        "there is no module 'no_such_module'",
        RUN,
    ),
    (
        {"coli_bad": ARCHITECTURE.replace('"toy_llama"', '"toy=llama"')},
        "'toy=llama' does not do as a name",
        RUN,
    ),
    (
        {"coli_bad": "from coli_parts import register_bench_tasks, register_template_loaders"},
        "there is a 'team' already",
        RUN,
    ),
    (
        {"coli_bad": PARTS.replace('"colours"', '"smoke"')},
        "there is a 'smoke' already",
        ("bench", "quality", "colours"),
    ),
]


@pytest.mark.parametrize(("modules", "named", "asked"), BROKEN)
def test_a_part_that_does_not_do_costs_its_plugin_alone(
    packages: Installing,
    parts_site: Path,
    served: CommandLine,
    modules: dict[str, str],
    named: str,
    asked: tuple[str, ...],
) -> None:
    packages.use([parts_site])
    packages.add("wrong", modules)
    served.variables["PYTHONPATH"] = packages.coli.variables["PYTHONPATH"]
    done = served.run(*asked)
    assert f"the plugin wrong 1.2.3 is broken and left out: {named}" in " ".join(
        done.stderr.split()
    )
    rows = json.loads(served.run("plugins", "list", "--json").stdout)["plugins"]
    assert {row["state"] for row in rows} == {"loaded"}  # until something asks for that part


def test_a_broken_plugin_ends_the_command_where_that_is_asked_for(packages: Installing) -> None:
    packages.add("wrong", {"coli_bad": "1 / 0"})
    named = "the plugin wrong 1.2.3 is broken: ZeroDivisionError: division by zero"
    done = packages.coli.run("top", "--json", "--strict-plugins", "--url", "http://127.0.0.1:9")
    assert done.returncode == 5  # it needs no plugins before there is a server
    done = packages.coli.run("--strict-plugins", "pull", "elsewhere:x")
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert "coli plugins disable wrong" in done.stderr
    packages.coli.variables["COLI_STRICT_PLUGINS"] = "1"
    assert named in packages.coli.run("helo").stderr
    packages.coli.variables["COLI_STRICT_PLUGINS"] = "0"
    assert "broken and left out" in packages.coli.run("helo").stderr


def test_an_architecture_of_ours_is_not_replaced(packages: Installing, tmp_path: Path) -> None:
    text = ARCHITECTURE.replace("toy_llama", "llama")
    packages.add("wrong", {"coli_bad": text, "toy_model": TOY_MODEL})
    done = packages.coli.run("run", "--model", str(write_hf(tmp_path / "tiny").path), "hi")
    assert done.returncode != 0
    assert "the architecture 'llama' is here already" in done.stderr
    assert "disable the plugin that adds toy_model" in done.stderr
