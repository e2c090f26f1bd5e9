"""Who may import whom: read from the source, so that imports inside functions count as well."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A module may import what stands on its own line or above; the longest prefix counts. Loading a case needs its kind.
LAYERS = (
    ("harness.errors", "harness.outcome", "harness.dtypes", "harness.fingerprint", "harness.checking"),
    ("harness.case", "harness.record"),
    ("harness.known",),
    (
        "harness.subjects",
        "harness.baseline",
        "harness.compare",
        "harness.timing.samples",
        "harness.stats",
    ),
    ("harness.attention_bound",),
    ("harness.kinds",),
    ("harness.timing.visit",),
    ("harness.case.load", "harness.case.json_schema", "harness.select", "harness.recording", "harness.execute"),
    ("harness.worker", "harness.pool", "harness.timing"),
    # run, report, regress, fuzz, and whatever is not named here
    ("harness", "harness.recording.runs"),
    ("harness.cli", "harness.verbs", "harness.plugin", "harness.entry", "metal_assay"),
)


@dataclass(frozen=True)
class Import:
    """One import: who, whom, where, and whether only type checkers see it."""

    module: str
    target: str
    line: int
    typing_only: bool = False

    def __str__(self) -> str:
        """Read like a compiler's message."""
        return f"{self.module.replace('.', '/')}:{self.line} imports {self.target}"


def imports_in(module: str, text: str, *, package: bool = False) -> list[Import]:
    """Return the imports of a module's source; `from a import b` names a.b, which may be a module."""
    tree = ast.parse(text)
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in node.body
        for inner in ast.walk(child)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [Import(module, target, node.lineno, id(node) in hidden) for target in targets]
    return found


def _imports(package: str) -> list[Import]:
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found += imports_in(module, path.read_text(encoding="utf-8"), package=parts[-1] == "__init__")
    return found


HARNESS, IMPL = _imports("harness"), _imports("impl")


def inside(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def layer(name: str) -> int:
    fitting = [(len(prefix), row) for row, prefixes in enumerate(LAYERS) for prefix in prefixes if inside(name, prefix)]
    return max(fitting)[1]


def test_imports_are_found_wherever_they_stand() -> None:
    text = """
from typing import TYPE_CHECKING
import a.b, c as d
from .near import x
from .. import up
if TYPE_CHECKING:
    from e import f
def function():
    try:
        import g
    except ImportError:
        pass
"""
    found = {(found.target, found.typing_only) for found in imports_in("p.q.r", text)}
    assert found == {
        ("typing.TYPE_CHECKING", False),
        ("a.b", False),
        ("c", False),
        ("p.q.near.x", False),
        ("p.up", False),
        ("e.f", True),
        ("g", False),
    }
    assert imports_in("p.q", "from .near import x", package=True)[0].target == "p.q.near.x"
    assert len(HARNESS) > 200
    assert len(IMPL) > 50
    assert any(inside(found.target, "impl") for found in HARNESS), "the adapters of the reference do import it"


def test_layers_are_as_drawn() -> None:
    rows = [
        "harness.case.model",
        "harness.baseline.ring",
        "harness.kinds.ring.run",
        "harness.case.load",
        "harness.pool",
    ]
    rows += ["harness.report.terminal", "harness.cli"]
    assert [layer(name) for name in rows] == [1, 3, 5, 7, 8, 9, 10]
    assert layer("harness.report") == layer("harness.run") == layer("harness.something.new") == 9


def test_impl_does_not_know_the_harness() -> None:
    assert not [str(found) for found in IMPL if inside(found.target, "harness", "metal_assay", "tests")]


def test_only_the_adapters_of_the_reference_know_impl() -> None:
    allowed = "harness.subjects.reference"
    wrong = [found for found in HARNESS if inside(found.target, "impl") and not inside(found.module, allowed)]
    assert not [str(found) for found in wrong]


def test_the_baseline_knows_numpy_alone() -> None:
    allowed = (*sys.stdlib_module_names, "numpy", "harness.baseline")
    wrong = [
        found for found in HARNESS if inside(found.module, "harness.baseline") and not inside(found.target, *allowed)
    ]
    assert not [str(found) for found in wrong]


def test_kinds_see_subjects_through_their_protocol_only() -> None:
    allowed = ("harness.subjects.protocol", "harness.subjects.call")
    for found in HARNESS:
        if inside(found.module, "harness.kinds"):
            assert not inside(found.target, "mlx", "mlx_lm"), str(found)
            assert not inside(found.target, "harness.subjects") or inside(found.target, *allowed), str(found)


def test_subjects_never_see_the_expected_answer() -> None:
    answers = (
        "harness.baseline",
        "harness.compare",
        "harness.kinds",
        "harness.case",
        "harness.record",
        "harness.execute",
    )
    # Words for a mistyped name are no answer.
    wrong = [
        found
        for found in HARNESS
        if inside(found.module, "harness.subjects") and inside(found.target, *answers)
        and not inside(found.target, "harness.case.problem")
    ]  # fmt: skip
    assert not [str(found) for found in wrong]


@pytest.mark.parametrize("package", ["harness.compare", "harness.timing.samples", "harness.stats"])
def test_measures_stand_alone(package: str) -> None:
    others = ("harness.subjects", "harness.baseline", "harness.kinds", "harness.case")
    assert not [str(found) for found in HARNESS if inside(found.module, package) and inside(found.target, *others)]


def test_arrows_point_down() -> None:
    wrong = [
        str(found)
        for found in HARNESS
        if not found.typing_only and inside(found.target, "harness") and layer(found.target) > layer(found.module)
        # The package's own names come on first use.
        and not (found.module == "harness" or inside(found.target, "harness.__version__"))
    ]  # fmt: skip
    assert not wrong
