"""What a case of kind `kernel` may say: the text of a kernel, its inputs and outputs, and how it is launched."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, WithJsonSchema, model_validator

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict, Whole

Check = Literal["output", "untouched", "lane-order", "deterministic"]
_Dtypes = Literal[
    "float32",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
]
_Words = Literal["normal", "uniform", "integers", "bits", "special", "index", "permutation", "zeros", "ones"]
_Views = Literal["plain", "transposed", "stride-0", "sliced"]


def _open(words: Any) -> WithJsonSchema:
    listed = {"enum": list(get_args(words))}
    return WithJsonSchema({"anyOf": [listed, {"type": "string", "description": "a matrix key"}]})


ElementType = Annotated[_Dtypes, _open(_Dtypes)]
_List = {"type": "array", "items": {"type": "number"}}
_Values = Annotated[
    _Words | Annotated[list[float], Field(min_length=1)], WithJsonSchema({"anyOf": [{"type": "string"}, _List]})
]
_View = Annotated[_Views, _open(_Views)]
# A matrix key of that very name puts a number where a text is expected.
Expression = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)]


class Function(Strict):
    """A Python function of a file beside the case, as `harness.kinds.kernel.files` puts it there."""

    file: str
    name: str
    text: str
    own: bool


class InputGiven(Strict):
    """One input: an array, a view of one, or a Python scalar."""

    shape: list[Count] | None = Field(default=None, description="[] makes an array without axes, passed by reference")
    dtype: ElementType = "float32"
    values: _Values = Field(
        default="normal",
        description="integers and uniform: low to high; bits: any bits; special: infinities, NaN, zeros, the smallest "
        "and largest numbers; index: 0, 1, 2, ...; permutation: these shuffled; or a list, repeated",
    )
    low: Whole | float = Field(default=0.0, description="lowest value of integers and uniform")
    high: Whole | float = Field(default=1.0, description="highest value of integers, inclusive, and of uniform")
    view: _View = Field(
        default="plain",
        description="transposed: the last two axes are swapped in memory; stride-0: the first axis repeats one slice; "
        "sliced: every second element along the last axis",
    )
    scalar: bool | Whole | float | None = Field(default=None, description="a Python number instead of an array")


class Within(Strict):
    """How far an output may be from the float64 answer: one of ulp, magnitudes with terms, limit, nmse."""

    ulp: Count | None = Field(default=None, description="representable numbers of the output's dtype")
    magnitudes: Expression | None = Field(default=None, description="the sum of the magnitudes of all terms")
    terms: Positive = Field(default=1, description="terms of a sum, for `magnitudes`")
    extra: Count = Field(default=3, description="roundings of a term beside those of summing, for `magnitudes`")
    arithmetic: Annotated[Dtype, _open(Dtype)] = Field(
        default="float32", description="dtype of the sums, for `magnitudes`"
    )
    limit: Expression | None = Field(
        default=None, description="the largest |error|: over the inputs, `expected` and `unit` of the output's dtype"
    )
    nmse: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, description="of the whole output")

    def named(self) -> list[str]:
        """Return which policies are asked for; exactly one is right."""
        return [name for name in ("ulp", "magnitudes", "limit", "nmse") if getattr(self, name) is not None]


class OutputGiven(Strict):
    """One output, and what it must hold."""

    shape: list[Positive]
    dtype: ElementType = "float32"
    expect: Expression | None = Field(default=None, description="over the inputs, in float64 and whole numbers")
    function: Annotated[Function | None, WithJsonSchema({"type": "string"})] = Field(
        default=None, description="file.py:name beside the case: called with the inputs by name; needs --allow-code"
    )
    within: Literal["exact"] | Within = "exact"


class KernelGiven(Strict):
    """A kernel and one launch of it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,60}$")] = "kernel"
    source: Annotated[str, Field(min_length=1)] | None = Field(default=None, description="the body, as Metal text")
    header: str = Field(default="", description="what stands before the kernel")
    file: str | None = Field(default=None, description="a file beside the case that holds the body")
    header_file: str | None = Field(default=None, description="a file beside the case that holds the header")
    twin: str | None = Field(default=None, description="body of another kernel of this name, launched before")
    inputs: dict[str, InputGiven] = Field(default_factory=dict, description="in the order of the parameters")
    outputs: Annotated[dict[str, OutputGiven], Field(min_length=1)]
    template: dict[str, bool | ElementType | Whole] = Field(default_factory=dict)
    grid: Annotated[list[Positive], Field(min_length=1, max_length=3)] = Field(description="threads in x, y, z")
    threadgroup: Annotated[list[Positive], Field(min_length=1, max_length=3)]
    ensure_row_contiguous: bool = True
    atomic: bool = Field(default=False, description="outputs are atomics")
    init: Whole | float | None = Field(default=None, description="what outputs hold before; else anything")
    seed: Count = 0

    _names: dict[str, int | str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _keep_names(self, info: ValidationInfo) -> Self:
        names: dict[str, Any] = (info.context or {}).get("names", {})
        dtypes = get_args(_Dtypes)
        self._names.update({name: value for name, value in names.items() if type(value) is int or value in dtypes})
        return self

    @property
    def constants(self) -> dict[str, int | str]:
        """Whole numbers and dtypes of the matrix, which expressions may name."""
        return self._names

    def space(self, of: Literal["grid", "threadgroup"]) -> tuple[int, int, int]:
        """Return grid or threadgroup with all three axes."""
        x, y, z = (*getattr(self, of), 1, 1)[:3]
        return x, y, z


class KernelWork(Strict):
    """What a launch must do at least, however the kernel is written: for GB/s, and as a bound on what can be true."""

    moved_bytes: Positive | None = Field(default=None, description="inputs read once and outputs written once")
    operations: Positive | None = Field(default=None, description="arithmetic; a multiply-add is two")


class KernelCase(CaseModel):
    """One behavior of a kernel, or of what runs it."""

    kind: Literal["kernel"]
    given: KernelGiven
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Literal["kernel"]] = Field(default_factory=list)
    work: KernelWork = Field(default_factory=KernelWork, description="what a launch moves and computes at least")
