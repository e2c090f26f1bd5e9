"""The buffers of a checked launch: each in a block of its own, with nothing near it.

A view with gaps, as a kernel gets it where ensure_row_contiguous is false, keeps its strides: its block holds its
elements where they were, relative to each other, and the gaps between them are marked as not its own.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from impl.metal import arrays
from impl.metal.checks.table import INPUT, OUTPUT
from impl.metal.errors import LaunchError
from impl.metal.signature import buffers, input_types

if TYPE_CHECKING:
    import mlx.core as mx
    from numpy.typing import NDArray

    from impl.metal.backend import Call
    from impl.metal.checks.native import Runtime
    from impl.metal.signature import Text

_GAP = 0xFF


@dataclass
class Block:
    """One buffer. pointer: what the kernel gets, inside the block of `bytes` at `begin`; valid: 1 for own elements."""

    name: str
    begin: int
    bytes: int
    pointer: int
    element_bytes: int
    kind: int
    initialized: bool
    position: int
    valid: NDArray[np.uint8] | None = None


class Blocks:
    """The buffers of one call, in the order of the kernel's parameters; freed by `release`."""

    def __init__(self, text: Text, call: Call, runtime: Runtime) -> None:
        """Copy the inputs. Raises LaunchError without memory for them."""
        self._runtime = runtime
        self.all: list[Block] = []
        self._call = call
        given = [arrays.row_contiguous(x) if text.ensure_row_contiguous else x for x in call.inputs]
        memories = [arrays.memory(x) for x in given]
        try:
            for buffer in buffers(text, input_types(given), call.output_dtypes):
                if buffer.role == "output":
                    name = text.output_names[buffer.position]
                    self._output(name, buffer.position)
                    continue
                name = text.input_names[buffer.position]
                memory = memories[buffer.position]
                if buffer.role == "input":
                    self._input(name, memory.owner, buffer.position)
                elif buffer.role == "shape":
                    self._input(f"{name}_shape", np.array(memory.shape, np.int32), buffer.position)
                elif buffer.role == "strides":
                    self._input(f"{name}_strides", np.array(memory.strides, np.int64), buffer.position)
                else:
                    self._input(f"{name}_ndim", np.array([len(memory.shape)], np.int32), buffer.position)
        except BaseException:
            self.release()
            raise

    def fill_outputs(self) -> None:
        """Put into the outputs what they hold before a launch."""
        made, memories = arrays.outputs(self._call.output_shapes, self._call.output_dtypes, self._call.init_value)
        for block in self.outputs():
            ctypes.memmove(block.begin, memories[block.position].address, block.bytes)
        del made

    def take_outputs(self) -> list[mx.array]:
        """Return what the outputs hold now."""
        made, memories = arrays.outputs(self._call.output_shapes, self._call.output_dtypes, None)
        for block in self.outputs():
            ctypes.memmove(memories[block.position].address, block.begin, block.bytes)
        return made

    def outputs(self) -> list[Block]:
        """Return the blocks of the outputs."""
        return [block for block in self.all if block.kind == OUTPUT]

    def release(self) -> None:
        """Give the memory back."""
        for block in self.all:
            self._runtime.release(block.begin, block.bytes)
        self.all = []

    def _output(self, name: str, position: int) -> None:
        item = self._call.output_dtypes[position].size
        count = math.prod(self._call.output_shapes[position])
        initialized = self._call.init_value is not None
        begin = self._reserve(name, count * item)
        self.all.append(Block(name, begin, count * item, begin, item, OUTPUT, initialized, position))

    def _input(self, name: str, values: NDArray[np.generic], position: int) -> None:
        item = values.itemsize
        reach = [(n - 1) * stride if n else 0 for n, stride in zip(values.shape, values.strides, strict=True)]
        below = -sum(r for r in reach if r < 0)
        count = 0 if values.size == 0 else (below + sum(r for r in reach if r > 0)) // item + 1
        begin = self._reserve(name, count * item)
        block = Block(name, begin, count * item, begin + below, item, INPUT, initialized=True, position=position)
        self.all.append(block)
        if not count:
            return
        # Through bytes: NumPy need not know the type.
        whole = np.ctypeslib.as_array((ctypes.c_uint8 * (count * item)).from_address(begin))
        if values.flags.c_contiguous:
            whole[:] = np.frombuffer(values.tobytes(), np.uint8)
            return
        valid = np.zeros(count, np.uint8)
        whole[:] = _GAP
        _view(whole.view(values.dtype), values, below // item)[...] = values
        _view(valid, values, below // item)[...] = 1
        if not valid.all():
            block.valid = valid

    def _reserve(self, name: str, size: int) -> int:
        begin = self._runtime.reserve(size)
        if not begin:
            raise LaunchError(f"no memory to check {name!r}, {size} bytes")
        return begin


def _view(flat: NDArray[np.generic], like: NDArray[np.generic], first: int) -> NDArray[np.generic]:
    strides = [stride // like.itemsize * flat.itemsize for stride in like.strides]
    return np.lib.stride_tricks.as_strided(flat[first:], like.shape, strides, writeable=True)
