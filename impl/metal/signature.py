"""What MLX puts around a kernel's body: the parameter list, and the whole Metal source that it would compile.

The rules are those of MLX 0.32's `metal_kernel`: small inputs are `constant`, 0-d inputs are references, and a name
such as `x_shape` or `thread_position_in_grid` becomes a parameter when the body's text contains it anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from impl.metal.errors import NotCoveredError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TemplateArgument = bool | int | mx.Dtype

# Inputs with fewer elements than this are passed in the constant address space.
_CONSTANT_BELOW = 8

_TYPE_NAMES = {
    mx.bool_: "bool",
    mx.int8: "int8_t",
    mx.uint8: "uint8_t",
    mx.int16: "int16_t",
    mx.uint16: "uint16_t",
    mx.int32: "int32_t",
    mx.uint32: "uint32_t",
    mx.int64: "int64_t",
    mx.uint64: "uint64_t",
    mx.float16: "float16_t",
    mx.float32: "float",
    mx.bfloat16: "bfloat16_t",
    mx.complex64: "complex64_t",
    mx.float64: "double",
}

# In MLX's order, which is the order of the parameters.
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}


@dataclass(frozen=True)
class Text:
    """What was given to `metal_kernel`."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str
    ensure_row_contiguous: bool
    atomic_outputs: bool
    math_mode: str = "safe"


@dataclass(frozen=True)
class Buffer:
    """One parameter that is a buffer: `role` is `input`, `shape`, `strides`, `ndim` or `output`."""

    role: str
    position: int  # of the input or output that it belongs to
    declaration: str  # such as `const device float* x`
    cast: str  # its type as a pointer, such as `const device float*`
    by_reference: bool


@dataclass(frozen=True)
class InputType:
    """What the generated source depends on in an input: not its shape, only how it is passed."""

    dtype: mx.Dtype
    scalar: bool
    constant: bool


def input_types(inputs: Iterable[mx.array]) -> tuple[InputType, ...]:
    """Return how each input is passed."""
    return tuple(InputType(x.dtype, x.ndim == 0, x.size < _CONSTANT_BELOW) for x in inputs)


def type_name(dtype: mx.Dtype) -> str:
    """Return MLX's Metal name of `dtype`, such as `bfloat16_t`."""
    return _TYPE_NAMES[dtype]


def buffers(text: Text, inputs: Sequence[InputType], output_dtypes: Sequence[mx.Dtype]) -> list[Buffer]:
    """Return the buffers in the order of their numbers: each input with its shape, strides and ndim; the outputs.

    Raises NotCoveredError for float64.
    """
    found: list[Buffer] = []
    for position, (name, given) in enumerate(zip(text.input_names, inputs, strict=True)):
        space = "constant" if given.constant else "device"
        element = _covered(given.dtype, name)
        pointer = f"const {space} {element}*"
        declared = f"const {space} {element}{'&' if given.scalar else '*'} {name}"
        found.append(Buffer("input", position, declared, pointer, given.scalar))
        if given.scalar:
            continue
        for role, kind in (("shape", "int"), ("strides", "int64_t"), ("ndim", "int")):
            if f"{name}_{role}" not in text.source:
                continue
            single = role == "ndim"
            declared = f"const constant {kind}{'&' if single else '*'} {name}_{role}"
            found.append(Buffer(role, position, declared, f"const constant {kind}*", single))
    for position, (name, dtype) in enumerate(zip(text.output_names, output_dtypes, strict=True)):
        element = _covered(dtype, name)
        pointer = f"device atomic<{element}>*" if text.atomic_outputs else f"device {element}*"
        found.append(Buffer("output", position, f"{pointer} {name}", pointer, by_reference=False))
    return found


def attributes(source: str) -> list[str]:
    """Return the names of the thread attributes that the body's text contains, in MLX's order."""
    return [name for name in ATTRIBUTES if name in source]


def metal_source(
    text: Text,
    inputs: Sequence[InputType],
    output_dtypes: Sequence[mx.Dtype],
    template: Sequence[tuple[str, TemplateArgument]],
) -> str:
    """Return the Metal source that MLX generates, character for character: what `verbose=True` prints."""
    name = _kernel_name(text, inputs, output_dtypes, template)
    lines = [f"{b.declaration} [[buffer({i})]]" for i, b in enumerate(buffers(text, inputs, output_dtypes))]
    lines += [f"{ATTRIBUTES[a]} {a} [[{a}]]" for a in attributes(text.source)]
    head = ""
    if template:
        head = "template <" + ", ".join(f"{_parameter_kind(value)} {given}" for given, value in template) + ">\n"
    parameters = ",\n".join(f"  {line}" for line in lines)
    whole = f"{text.header}{head}[[kernel]] void {name}(\n{parameters}) {{\n{text.source}\n}}\n"
    if template:
        instance = name + _template_list(template)
        whole += f'\ntemplate [[host_name("{name}")]] [[kernel]] decltype({instance}) {instance};\n'
    return whole


def _kernel_name(
    text: Text,
    inputs: Sequence[InputType],
    output_dtypes: Sequence[mx.Dtype],
    template: Sequence[tuple[str, TemplateArgument]],
) -> str:
    name = f"custom_kernel_{text.name}"
    if template:
        name += "_" + re.sub(r"<|>|, |-", "_", _template_list(template))[:-1]
    for given in inputs:
        name += f"_{type_name(given.dtype)}" + ("s" if given.scalar else "c" if given.constant else "")
    return name + "".join(f"_{type_name(dtype)}" for dtype in output_dtypes)


def _template_list(template: Sequence[tuple[str, TemplateArgument]]) -> str:
    return "<" + ", ".join(_plain(value) for _, value in template) + ">"


def _plain(value: TemplateArgument) -> str:
    # MLX prints true as 1.
    return type_name(value) if isinstance(value, mx.Dtype) else str(int(value))


def _parameter_kind(value: TemplateArgument) -> str:
    if isinstance(value, mx.Dtype):
        return "typename"
    return "bool" if isinstance(value, bool) else "int"


def _covered(dtype: mx.Dtype, name: str) -> str:
    if dtype == mx.float64:
        raise NotCoveredError(f"{name} is float64, which Metal does not have; convert it to float32")
    return type_name(dtype)
