"""Kind `kernel`: what its files may say, the shipped cases, and launches that go wrong in every way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.case.load import load_cases, load_file
from harness.errors import CaseFileError, UsageError
from harness.execute import execute
from harness.kinds.kernel import KIND
from harness.kinds.kernel.files import ALLOW_CODE_VARIABLE, allow_code, refuse_code
from harness.kinds.kernel.inputs import GUARD, make_inputs
from harness.kinds.kernel.launches import prepare
from harness.outcome import Outcome, Result
from harness.subjects.protocol import KernelAnswer, KernelLaunch, Kernels, KernelText, KernelView, Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.case.expand import Instance
    from harness.subjects.protocol import Subject as Base

CASES = Path(__file__).parents[2] / "cases" / "kernel"
HEAD = "assay: 1\nkind: kernel\ntitle: t\nwhy: w\n"
GIVEN = """\
given:
  source: "y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];"
  inputs:
    x: {shape: [7], values: index}
  outputs:
    y: {shape: [7], expect: 2 * x}
  grid: [7]
  threadgroup: [4]
check: [output, untouched, lane-order, deterministic]
"""


def load_text(folder: Path, text: str) -> list[Instance]:
    path = folder / "case.yaml"
    path.write_text(HEAD + text)
    return load_file(path)


def seen(view: KernelView) -> Any:
    """Return what a kernel sees of an input: the view alone, without what lies around it."""
    strides = [step * view.memory.itemsize for step in view.strides]
    return np.lib.stride_tricks.as_strided(view.memory[view.offset :], view.shape, strides)


@dataclass
class Doubling(Kernels):
    """Doubles its input, with a mistake: a function that changes the answer, its memories, or its launch."""

    mistake: Callable[[KernelAnswer, str | None, int], KernelAnswer] = lambda answer, _order, _number: answer
    lane_orders: bool = True
    orders: list[str | None] = field(default_factory=list)
    texts: list[KernelText] = field(default_factory=list)

    def launch(self, text: KernelText, launch: KernelLaunch, *, lane_order: str | None = None) -> KernelAnswer:
        self.orders.append(lane_order)
        self.texts.append(text)
        (given,) = launch.inputs
        assert isinstance(given, KernelView)
        output = np.full(launch.output_sizes, launch.init, launch.output_dtypes[0])
        output[:-GUARD] = 2 * seen(given)
        return self.mistake(KernelAnswer((output,), (given.memory,)), lane_order, len(self.orders))


@dataclass
class Launching(Subject):
    """A subject with nothing but kernels."""

    kernels: Kernels

    def kernel(self) -> Kernels:
        return self.kernels


def run_doubling(folder: Path, mistake: Any = None, text: str = GIVEN) -> Result:
    (instance,) = load_text(folder, text)
    kernels = Doubling() if mistake is None else Doubling(mistake)
    return execute(instance, Launching(kernels))


def changed(place: int, value: float) -> Callable[[KernelAnswer, str | None, int], KernelAnswer]:
    def change(answer: KernelAnswer, _order: str | None, _number: int) -> KernelAnswer:
        answer.outputs[0][place] = value
        return answer

    return change


def unwritten(answer: KernelAnswer, _order: str | None, number: int) -> KernelAnswer:
    answer.outputs[0][5:7] = (85, 0)[number - 1]
    return answer


def writing_inputs(answer: KernelAnswer, _order: str | None, _number: int) -> KernelAnswer:
    memory = answer.memories[0]
    assert memory is not None
    other = memory.copy()
    other[GUARD + 7] = 1.0
    return replace(answer, memories=(other,))


def ordered(answer: KernelAnswer, order: str | None, _number: int) -> KernelAnswer:
    answer.outputs[0][3] += order == "2"
    return answer


def moody(answer: KernelAnswer, _order: str | None, number: int) -> KernelAnswer:
    answer.outputs[0][3] += number == 3
    return answer


def short(answer: KernelAnswer, _order: str | None, _number: int) -> KernelAnswer:
    return replace(answer, outputs=(answer.outputs[0][:7],))


def many(answer: KernelAnswer, _order: str | None, _number: int) -> KernelAnswer:
    return replace(answer, outputs=answer.outputs * 2)


@pytest.fixture(scope="module")
def shipped() -> list[Instance]:
    return load_cases([CASES])


def test_the_shipped_cases_load(shipped: list[Instance]) -> None:
    assert 250 <= len(shipped) <= 400
    assert len({one.case_name for one in shipped}) >= 40
    assert sum(bool(one.case.time) for one in shipped) == 3  # type: ignore[attr-defined]
    assert all("output" in one.case.check for one in shipped)  # type: ignore[attr-defined]


def test_the_kernels_that_have_to_be_compiled_are_few(shipped: list[Instance]) -> None:
    assert prepare(shipped, Launching(Doubling()), 1) <= 120


def test_a_right_kernel_passes_in_every_order(tmp_path: Path) -> None:
    (instance,) = load_text(tmp_path, GIVEN)
    kernels = Doubling()
    result = execute(instance, Launching(kernels))
    assert result.outcome is Outcome.PASSED, result.reason
    # Two fills, a second launch, and four orders.
    assert kernels.orders == [None, None, None, "reverse", "1", "2", "3"]


def test_without_lane_orders_none_is_tried(tmp_path: Path) -> None:
    (instance,) = load_text(tmp_path, GIVEN)
    kernels = Doubling()
    kernels.lane_orders = False
    assert execute(instance, Launching(kernels)).outcome is Outcome.PASSED
    assert set(kernels.orders) == {None}


@pytest.mark.parametrize(
    ("mistake", "check", "where", "actual"),
    [
        (changed(4, 9), "output", "y[4]", "9"),
        (changed(7, 1), "output", "y, element 7 of 7", "wrote 1"),
        (changed(7 + GUARD - 1, 1), "output", f"y, element {6 + GUARD} of 7", "wrote 1"),
        (unwritten, "output", "y[5]", "no thread wrote it"),
        (writing_inputs, "untouched", "input x, element 7 from its start in memory", "1"),
        (ordered, "lane-order", "y[3]", "7"),
        (moody, "deterministic", "y[3]", "then 7"),
        (short, "shape", "output y of launch", "float32 [7]"),
        (many, "shape", "launch", "2 outputs"),
    ],
)
def test_a_launch_that_goes_wrong_is_found(tmp_path: Path, mistake: Any, check: str, where: str, actual: str) -> None:
    result = run_doubling(tmp_path, mistake)
    assert result.outcome is Outcome.FAILED
    found = result.findings[0]
    assert (found.check, found.where, found.actual) == (check, where, actual)


def test_what_was_not_written_is_told_by_its_place(tmp_path: Path) -> None:
    note = run_doubling(tmp_path, unwritten).findings[0].note
    assert note == (
        "2 of 7 elements, counted as in memory: 5 to 6, the last ones; "
        "grid 7 x 1 x 1, threadgroup 4 x 1 x 1, the last ones not full"
    )


def test_with_an_initial_value_of_its_own_a_case_runs_once(tmp_path: Path) -> None:
    text = GIVEN.replace("  grid:", "  init: 3\n  grid:").replace(", untouched, lane-order, deterministic", "")
    (instance,) = load_text(tmp_path, text)
    kernels = Doubling()
    assert execute(instance, Launching(kernels)).outcome is Outcome.PASSED
    assert len(kernels.orders) == 1
    assert run_doubling(tmp_path, changed(8, 0), text).outcome is Outcome.FAILED


def test_a_twin_is_launched_first_and_not_compared(tmp_path: Path) -> None:
    (instance,) = load_text(tmp_path, GIVEN.replace("  grid:", '  twin: "y[0] = 1;"\n  grid:'))
    kernels = Doubling()
    assert execute(instance, Launching(kernels)).outcome is Outcome.PASSED
    first, second = kernels.texts[:2]
    assert (first.source, first.name) == ("y[0] = 1;", second.name)
    assert second.source.startswith("y[thread")


@pytest.mark.parametrize("view", ["plain", "transposed", "stride-0", "sliced"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_inputs_lie_in_traps(tmp_path: Path, view: str, dtype: str) -> None:
    text = GIVEN.replace(
        "{shape: [7], values: index}", f"{{shape: [7, 3], dtype: {dtype}, values: index, view: {view}}}"
    )
    (instance,) = load_text(tmp_path, text.replace("expect: 2 * x", 'expect: "x[:, 0]"'))
    made = make_inputs(instance.case.given)["x"]  # type: ignore[attr-defined]
    assert isinstance(made.shown, KernelView)
    assert np.array_equal(seen(made.shown), made.values)
    rows = made.values.astype(np.float64)
    assert np.array_equal(rows, np.arange(21).reshape(7, 3) if view != "stride-0" else np.tile([0, 1, 2], (7, 1)))
    # Everything that is no element of the view is a trap.
    memory = made.shown.memory.astype(np.float64)
    trapped = np.isnan(memory) if dtype != "uint8" else memory == 0xAA
    kept = {"stride-0": 3}.get(view, 21)
    assert trapped.sum() == memory.size - kept
    assert trapped[:GUARD].all()
    assert trapped[-GUARD:].all()
    strides = {"plain": (3, 1), "transposed": (1, 7), "stride-0": (0, 1), "sliced": (6, 2)}
    assert made.shown.strides == strides[view]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2 * x}", "2 * z}", "given.outputs.y.expect: 'z' is not known here"),
        ("2 * x}", "expp(x)}", "there is no function 'expp'; did you mean 'exp'?"),
        ("2 * x}", "x.sum()}", "write sum(x) in the place of x.sum"),
        ("2 * x}", '"x[:3]"}', "makes an array of shape [3], and the output's is [7]"),
        ("2 * x}", "__import__(x)}", "there is no function '__import__'"),
        ("2 * x}", '"[k for k in x]"}', "can't stand in an expression"),
        ("2 * x}", "x + 9 ** 99}", "a power of whole numbers goes up to 64"),
        ("2 * x}", '"sum(zeros(100000, 100000)) + x"}', "16777216 are allowed"),
        ("2 * x}", '"(x > 1) and x"}', "for arrays write & | ~"),
        ("2 * x}", "2 * x, within: {ulp: 1, nmse: 0.1}}", "ulp and nmse do not go together"),
        ("2 * x}", "2 * x, within: {terms: 4}}", "given.outputs.y.within: allows nothing"),
        ("2 * x}", "2 * x, within: {magnitudes: x}}", "needs `terms` beside it"),
        ("2 * x}", "2 * x, within: {limit: 100}}", "hardly anything could fail"),
        ("2 * x}", "2 * x, within: {limit: 1, terms: 3}}", "does nothing without `magnitudes`"),
        ("{shape: [7], expect", "{shape: [7], dtype: int32, within: {ulp: 1}, expect", "counts floats"),
        (", expect: 2 * x", "", "nothing says what must come out"),
        ("expect: 2 * x", "function: f.py:f", "'f.py' can't be read"),
        ("expect: 2 * x", "function: ../f.py:f", "must lie beside the case"),
        ("expect: 2 * x", "function: {file: f.py, name: f, text: '', own: true}", "must be `file.py:function`"),
        ("  source: ", "  file: a.metal\n  source: ", "given.file: there is `source` already"),
        ("{shape: [7], values: index}", "{values: index}", "has no size: write `shape: [8]`"),
        ("{shape: [7], values: index}", "{scalar: 1, dtype: int32}", "does nothing beside `scalar`"),
        ("{shape: [7], values: index}", "{shape: [7], view: transposed}", "`transposed` needs 2 axes"),
        ("{shape: [7], values: index}", "{shape: [7], low: 3}", "does nothing without `values: integers`"),
        ("values: index", "dtype: int32", "`normal` is of floats, and this is int32"),
        ("values: index", "values: idnex", "did you mean 'index'?"),
        ("[4]", "[2048]", "given.threadgroup: has 2048 threads; a GPU takes up to 1024"),
        ("    x:", "    x y:", "'x y' is no name of a parameter"),
        ("    y: {", "    x: {", "there is an input of this name"),
        ("[output, untouched", "[untouched", "nothing looks at what the kernel writes"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GIVEN
    with pytest.raises(CaseFileError, match=re.escape(message)) as error:
        load_text(tmp_path, GIVEN.replace(old, new, 1))
    assert re.search(r"case\.yaml:([5-9]|1\d):\d+: ", str(error.value))


def test_metal_text_may_lie_beside_the_case_and_counts_in_its_digest(tmp_path: Path) -> None:
    text = re.sub(r"  source: .*\n", "  file: body.metal\n", GIVEN)
    (tmp_path / "body.metal").write_text("y[0] = 1;")
    (one,) = load_text(tmp_path, text)
    assert one.case.given.source == "y[0] = 1;"  # type: ignore[attr-defined]
    (tmp_path / "body.metal").write_text("y[0] = 2;")
    (other,) = load_text(tmp_path, text)
    assert one.digest != other.digest


def test_python_of_a_case_runs_only_when_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOW_CODE_VARIABLE, raising=False)
    (tmp_path / "answers.py").write_text("def double(x):\n    return 2 * x\n")
    (instance,) = load_text(tmp_path, GIVEN.replace("expect: 2 * x", "function: answers.py:double"))
    with pytest.raises(UsageError, match=re.escape("add --allow-code if you trust it")):
        refuse_code([instance])
    result = execute(instance, Launching(Doubling()))
    assert (result.outcome, result.comparisons) == (Outcome.ERRORED, 0)
    assert "may not run without --allow-code" in result.reason
    # Set first, so that it is taken away again.
    monkeypatch.setenv(ALLOW_CODE_VARIABLE, "0")
    allow_code()
    refuse_code([instance])
    assert execute(instance, Launching(Doubling())).outcome is Outcome.PASSED
    assert execute(instance, Launching(Doubling(changed(0, 5)))).outcome is Outcome.FAILED


def test_a_function_that_fails_is_the_cases_own_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_CODE_VARIABLE, "1")
    (tmp_path / "answers.py").write_text("def double(x):\n    return 1 / 0\n")
    (instance,) = load_text(tmp_path, GIVEN.replace("expect: 2 * x", "function: answers.py:double"))
    result = execute(instance, Launching(Doubling()))
    assert result.outcome is Outcome.ERRORED
    assert result.reason == "given.outputs.y.function: double raised ZeroDivisionError: division by zero"


def test_the_shipped_cases_may_run_their_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOW_CODE_VARIABLE, raising=False)
    refuse_code(load_file(CASES / "barriers-in-a-loop-of-unknown-length.yaml"))


def test_a_kernel_is_shown_with_its_lines_and_answers(tmp_path: Path) -> None:
    (instance,) = load_text(tmp_path, GIVEN)
    assert list(KIND.describe(instance.case)) == [
        "kernel:",
        "    1 | y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];",
        "input x: float32 [7], index: 0 1 2 3 4 5",
        "grid 7 x 1 x 1, threadgroup 4 x 1 x 1, the last ones not full",
        "output y: float32 [7] = 2 * x",
        "  first answers: 0 2 4 6 8 10",
        "  exact",
        "checked: output, untouched, lane-order, deterministic",
    ]


def test_a_subject_without_kernels_is_told_apart(tmp_path: Path) -> None:
    class Nothing(Subject):
        """Has no kind at all."""

    (instance,) = load_text(tmp_path, GIVEN)
    subject: Base = Nothing()
    assert execute(instance, subject).outcome is Outcome.UNSUPPORTED
