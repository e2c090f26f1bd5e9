"""How exact MLX's own operations are: ``python -m tests.bench.mlx_operations``.

Runs every case of the kinds affine and attention on MLX itself, and on mlx-lm's attention, and puts the largest error
of each operation beside its derived bound. What exceeds its bound is made small and shown as a case.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
import mlx.core as mx
from tabulate import tabulate

from harness.case.load import load_cases
from harness.fingerprint import fingerprint
from harness.kinds.affine.schema import AffineCase
from harness.kinds.attention.schema import AttentionCase
from harness.subjects.registry import load_subject
from tests.bench.mlx_operations_measure import Case, Cell, Ran, Tally, as_yaml, measure, mode_of, run_case, shrink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.case.expand import Instance
    from harness.subjects.protocol import Subject

CASES = Path(__file__).parents[2] / "cases"
# What we make of each case that fails, by reading MLX and trying around it. A case without an entry is not judged yet.
VERDICTS = {
    "affine/range-wider-than-the-largest-number": "A fault, minor: scale * code is formed in float16 and overflows "
    "before the bias brings it back, for groups that span more than float16's largest number.",
    "affine/microscaling-sums-before-the-scale": "A fault: of ordinary numbers comes infinity. The transposed product "
    "adds up elements of up to 448 in float16 and scales each group's sum afterwards; 448 * 147 is too large already. "
    "The other orientation scales first and is right. By their source, kernels that add in float32 (the vectorized "
    "path of this backend, and those for GPUs) can't have it.",
    "affine/microscaling-small-weights": "A fault, minor: largest / 448 is formed in float16, where it is 0 for "
    "weights below about 1.3e-5, and the whole group becomes 0. Decoding forms the scale in float16 as well. bfloat16 "
    "is not concerned, and mxfp4, which divides by 6, only below 2e-7.",
    "affine/nvfp4-encodes-any-number-of-groups": "A fault, loud: an odd number of groups of 16 is reshaped by the 32 "
    "and raises, where the documentation asks for whole groups only.",
    "affine/nvfp4-decodes-any-number-of-groups": "A fault, loud: planes with an odd number of groups of 16, made "
    "elsewhere, are reshaped by the 32 and raise.",
    "affine/nvfp4-saturates": "A fault, far from practice: a float32 or bfloat16 value of 6e10 and more becomes 0, "
    "not the largest number: its distances to all 16 elements round to the same.",
    "attention/every-head-with-a-mask-of-its-own": "A fault, loud: mlx-lm's quantized path puts the axis of the group "
    "in front of the mask's head axis, and a mask of several heads no longer fits. Its plain path takes such masks.",
    "attention/a-bias-for-every-head": "See every-head-with-a-mask-of-its-own.",
    "attention/finite-biases": "See every-head-with-a-mask-of-its-own: only `bias: slopes`, which has one for each "
    "head, is concerned. Finite biases that all heads share are added as they should be.",
    "attention/keys-and-values-differ-in-width": "A fault, loud: the result is reshaped to the width of the keys.",
}


def line(cell: Cell, tally: Tally) -> dict[str, str]:
    """Give a line of the table."""
    ratio = f"{tally.ratio:.2g}" if tally.bounded else "equal bits" if tally.passed else "-"
    return {
        "operation": cell.operation,
        "mode": cell.mode,
        "dtype": cell.dtype,
        "instances": str(tally.passed + tally.failed),
        "error / bound": ratio,
        "fail": str(tally.failed or ""),
        "not offered": str(tally.unsupported or ""),
    }


def size_of(case: Case) -> int:
    """Say how large a case is: the smallest of those that fail alike is made smaller still."""
    given = case.given
    if isinstance(case, AffineCase):
        return case.given.outputs * case.given.inputs * case.given.batch * case.given.stack
    return given.rows * given.heads * given.queries * given.keys  # type: ignore[union-attr]


def findings_text(failing: Sequence[tuple[Instance, Ran]], subject: Subject, name: str) -> str:
    """Give the part of the report about each case that fails."""
    by_case: dict[str, list[tuple[Instance, Ran]]] = {}
    for instance, ran in failing:
        by_case.setdefault(instance.case_name, []).append((instance, ran))
    parts = []
    for case_name, group in sorted(by_case.items()):
        instance, ran = min(group, key=lambda one: size_of(as_ours(one[0])))
        small = shrink(as_ours(instance), subject, ran.outcome)
        shown = run_case(small, subject)
        concerned = sorted({f"{mode_of(as_ours(one))} {as_ours(one).given.dtype}" for one, _ in group})
        parts.append(
            f"### {case_name}, on {name}\n\n{VERDICTS.get(case_name, 'Not judged yet.')}\n\n"
            f"{len(group)} instance{'s' if len(group) > 1 else ''}, {', '.join(concerned)}. Made small:\n\n"
            f"```yaml\n{as_yaml(small, f'smallest input of {case_name} that {name} gets wrong')}```\n\n"
            f"`{shown.reason}`\n"
        )
    return "\n".join(parts)


def as_ours(instance: Instance) -> Case:
    """Return the case of an instance of one of our two kinds."""
    case = instance.case
    if not isinstance(case, AffineCase | AttentionCase):
        raise TypeError(instance.id)
    return case


def page(table: Mapping[Cell, Tally], findings: str, command: str) -> str:
    """Give the report that is committed."""
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    backend = "CPU backend. Nothing here was seen on Metal" if on_cpu else f"GPU backend ({mx.default_device()})"
    packages = ("mlx", "mlx-lm", "numpy", "ml-dtypes")
    installed = {name: version(name) for name in packages if find_spec(name.replace("-", "_"))}
    lines = [line(cell, tally) for cell, tally in sorted(table.items())]
    counted = sum(tally.passed + tally.failed for tally in table.values())
    failed = sum(tally.failed for tally in table.values())
    return f"""# MLX's own operations, against float64

Made by `{command}` on {datetime.now(UTC).date()}: MLX {installed["mlx"]}, {backend}.

Every instance of the cases `affine` and `attention`, on the operation alone. *error / bound* is the largest error of
an element over its derived bound, of all instances that pass: above 1 nothing passes, and near 0 the bound has room to
spare (it must hold for any order of sums, in the dtype, on any backend). *equal bits*: whole numbers, codes or copied
values that allow no error, and had none. A value is encoded as the nearest that there is, and the bound of mx.quantize
is half of a step: there 1 is as it should be. *not offered*: the backend says that it doesn't have it.

{counted} comparisons of an operation with its baseline, of which {failed} fail.

{tabulate(lines, headers="keys", tablefmt="github", disable_numparse=True)}

## What exceeds its bound, or raises

{findings or "Nothing."}
## Not called faults

- Ties: between two elements of mxfp4 and nvfp4, MLX's CPU backend takes the one nearer to 0, and the source of its
  kernels for GPUs the even one. Both are nearest, so the cases allow both; planes made on the two differ.
- MLX 0.32.4 rounds the scales of mxfp4 and mxfp8 up, so that nothing is cut off, and the cases ask for that. The
  source of 0.32.2 rounds to the nearest power of two, and the conversion that the specification describes (OCP
  Microscaling Formats 1.0) takes the largest power of two of the group over that of an element: both cut values off.
- In bfloat16 the bound of a sum grows to the size of its terms at some 120 of them; cases with more use whole numbers.

## Machine

{tabulate(list({**fingerprint(), **installed}.items()), headers=("", ""), tablefmt="github", disable_numparse=True)}
"""


def report(select: str | None, command: str) -> str:
    """Run everything and give the page; `select` is a part of the names of cases to run alone."""
    table: dict[Cell, Tally] = {}
    findings = []
    named = None if select is None else (lambda name: select in name)
    instances = load_cases([CASES / "affine", CASES / "attention"], named=named)
    for name in ("mlx", *(["mlx-lm"] if find_spec("mlx_lm") else [])):
        subject = load_subject(name)
        # mlx-lm hands plain attention over to MLX, which is there already.
        own = [
            one for one in instances if name == "mlx" or (one.kind, mode_of(as_ours(one))) == ("attention", "affine")
        ]
        failing = list(measure(own, subject, name, table))
        findings.append(findings_text(failing, subject, name))
    offered = {cell: tally for cell, tally in table.items() if tally.passed + tally.failed}
    return page(offered, "\n".join(filter(None, findings)), command)


@click.command()
@click.option("--select", help="Run only cases with this in their name.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
def main(select: str | None, markdown: Path | None) -> None:
    """Put the largest error of MLX's own operations beside its bound."""
    options = "".join(f" --{key} {value}" for key, value in (("select", select), ("markdown", markdown)) if value)
    text = report(select, f"python -m tests.bench.mlx_operations{options}")
    if markdown:
        markdown.write_text(text, encoding="utf-8")
    else:
        click.echo(text)


if __name__ == "__main__":
    main()
