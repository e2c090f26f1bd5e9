"""Which texts the front end takes: one translation unit with all probes that are Metal, one with all that are not."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from impl.metal.toolchain import find_toolchain, front_end_flags
from impl.metal.vector_syntax import rewrite

FOLDER = Path(__file__).parent / "prelude"


@dataclass(frozen=True)
class Probe:
    """A kernel body with its header, and for a refused one a part of clang's message."""

    name: str
    header: str
    body: str
    message: str


def _probes(file: str) -> list[Probe]:
    found = []
    for text in re.split(r"^//! ", (FOLDER / file).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, *lines = text.splitlines()
        header = "\n".join(line[4:] for line in lines if line.startswith("//? "))
        message = "".join(line[4:] for line in lines if line.startswith("//= "))
        body = "\n".join(line for line in lines if not line.startswith(("//? ", "//= ")))
        found.append(Probe(name, header, body, message))
    return found


def _messages(probes: list[Probe], tmp_path: Path) -> dict[str, str]:
    # Each probe is a file of its own to clang, so that a message can be told to belong to it.
    unit = ['#include "metal_prelude.h"']
    for number, probe in enumerate(probes):
        header, body = rewrite(probe.header, probe.body)
        unit.append(f'#line 1 "probe {number}"\nnamespace probe_{number} {{\n{header}\n')
        unit.append(f"__kernel void run_{number}(const device float* x, device float* y) {{\n{body}\n}}\n}}")
    (tmp_path / "unit.cl").write_text("\n".join(unit), encoding="utf-8")
    toolchain = find_toolchain()
    command = [
        *toolchain.clang,
        *front_end_flags(),
        "-target",
        toolchain.target,
        "-w",
        "-ferror-limit=0",
        "-fsyntax-only",
    ]
    ran = subprocess.run([*command, str(tmp_path / "unit.cl")], capture_output=True, text=True, check=False)
    messages: dict[str, str] = {}
    # A message about a function of the prelude names the probe in the notes below it.
    for block in re.split(r"^(?=\S.*: (?:fatal )?error: )", ran.stderr, flags=re.MULTILINE):
        named = re.search(r"probe (\d+):\d+", block)
        if "error: " in block:
            name = probes[int(named[1])].name if named else "outside of every probe"
            messages[name] = messages.get(name, "") + block
    return messages


def test_texts_that_are_metal_compile(tmp_path: Path) -> None:
    probes = _probes("accepted.metal")
    assert len(probes) >= 15
    assert _messages(probes, tmp_path) == {}


def test_texts_that_are_not_metal_are_refused_with_a_reason(tmp_path: Path) -> None:
    probes = _probes("refused.metal")
    messages = _messages(probes, tmp_path)
    assert "outside of every probe" not in messages
    wrong = {
        p.name: messages.get(p.name, "accepted")[:300] for p in probes if p.message not in messages.get(p.name, "")
    }
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("probe", _probes("accepted.metal"), ids=lambda p: p.name)
def test_each_accepted_text_compiles_alone(probe: Probe, tmp_path: Path) -> None:
    assert _messages([probe], tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("probe", _probes("refused.metal"), ids=lambda p: p.name)
def test_each_refused_text_is_refused_alone(probe: Probe, tmp_path: Path) -> None:
    assert probe.message in _messages([probe], tmp_path)[probe.name]
