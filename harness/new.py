"""`assay new`: a small case that passes as it stands, with comments that say what else could be written."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from string import Template

import yaml

from harness.case.load import SUFFIXES
from harness.case.problem import nearest
from harness.errors import UsageError
from harness.kinds import KIND_NAMES

MAX_TITLE_CHARS = 120

# Every line of the tables below is valid once its `#` is taken away; the tests do that.
RING = """\
assay: 1                            # version of the format
kind: ring
title: $title
why: >
  Say here who gets this wrong, and how. It is what a reader of a failure wants to know first.
# source: https://...               # where it was reported or is defined

matrix:                             # every combination is an instance
  window: [4, 8]                    # a key of `given`: sets it
  over: [1, 2, window]              # any other key: a name for steps and `where`; values may be arithmetic
  storage: [plain, affine8x32]      # affine: bits x group size
# where: over < window              # keeps only these combinations

# The cache. Its keys: window (none: a full cache), rows, kv_heads, query_heads, head_dim, value_dim, dtype, storage,
# sinks (tokens kept at the front for good), chunked, the seed of the data, and for batches
#   layout: ring, aligned (rows apart in common columns), affine, speculative-affine (packed rows)
#   crossing: tokens at which a plain row becomes affine, as `storage` says, such as [4, 9]
given: {head_dim: 64, dtype: float32, seed: 1}

steps:                              # after each of them, everything in `check` is compared
  - append: window
  - decode: over
  - append: 3

# visible: which tokens may each query attend to?     stored: is each visible token stored as itself, bit for bit?
# attention: is the output within its error bound?    positions: are the offsets right?
# untouched: do arrays that were given or returned earlier keep their values?
check: [visible, stored, attention, positions]
# time: [append, decode, attention] # what `assay run --benchmark` times

# The steps there are. `- {trim: 2, expect: refused}` says that a cache of this size can't do it exactly.
#
#  - append: 3                      # one block of 3 new tokens for every row
#  - decode: 3                      # 3 blocks of one token
#  - trim: 2                        # forget the newest 2 tokens of every row
#  - begin: round                   # open a speculative round ...
#  - commit                         # ... and keep all of it
#  - rollback: {keep: [1, 0]}       # ... or only its first tokens, so many a row
#  - merge: {rows: [[append: 3], [append: 1, decode: 2]]}         # as first step: a batch of solo caches
#  - extend: {rows: [[append: 2]]}  # join another batch
#  - filter: {rows: [1, 0]}         # keep these rows, in this order
#  - extract: {row: 0, limit: 4}    # go on with one row alone, with at most 4 tokens
#  - prefill: {lengths: [5, 3], left: [0, 2], chunks: [3, 2]}     # padded, cut into chunks
#  - prepare: {lengths: [5, 3], left: [0, 2]}                     # the same in parts: announce it ...
#  - chunk: 5                       # ... give the next 5 columns ...
#  - finalize                       # ... and close it
#  - quantize: {bits: 8, group: 32} # go on with affine storage; `rows: [0]` for some rows alone
#  - copy: deep                     # go on with a copy; the original must stay as it was
#  - save-load                      # to a file and back
#  - donor: {window: 4}             # look at what the cache lends to a layer without keys
#  - pin: {columns: 4}              # layout of one subject, which the case names: `pins: reference`
#  - check: [visible]               # look here, and nowhere without such a step
"""

AFFINE = """\
assay: 1                            # version of the format
kind: affine
title: $title
why: >
  Say here who gets this wrong, and how. It is what a reader of a failure wants to know first.
# source: https://...               # where it was reported or is defined

matrix:                             # every combination is an instance
  bits: [3, 4, 8]                   # 1, 2, 3, 4, 5, 6 or 8
  outputs: [1, 8, 33]               # values may be arithmetic over other keys
# where: bits != 3 or outputs > 1   # keeps only these combinations

# A matrix W, how it is quantized, and the vectors x that multiply it. The keys: bits, group (32, 64 or 128), dtype,
# outputs, inputs, batch (rows of x), stack and repeats (leading axes, as of grouped heads), picks (products of gather),
# orientation (transposed: x @ W.T, plain: x @ W), the seed of the data, data and x (values of W and of x), and
#   mode: affine, mxfp4, mxfp8, nvfp4 (these three have bits and group of their own), plain
#   data: normal, integers, constant, zeros, tiny, symmetric, min-dominates, max-dominates, negative, between-codes,
#         large, full-range; of the other modes: codes, small, beyond-range
#   x: normal, tens, sparse, signs, one-hot
#   views (how arrays lie in memory): contiguous, transposed, sliced, stride-0
#   indices (of gather): any, sorted, experts
given: {group: 32, dtype: float32, inputs: 64, batch: 2, seed: 1}

# encode: are codes, scales and biases those of the format?   decode: is scale * code + bias what comes back?
# round-trip: does decoding what was encoded stay near?       matmul: is the product within its error bound?
# gather: is each picked product within its error bound?      untouched: do given arrays keep their values?
check: [encode, decode, round-trip, matmul]
# time: [quantize, dequantize, matmul]   # what `assay run --benchmark` times
"""

KERNEL = """\
assay: 1                            # version of the format
kind: kernel
title: $title
why: >
  Say here who gets this wrong, and how. It is what a reader of a failure wants to know first.
# source: https://...               # where it was reported or is defined

matrix:                             # every combination is an instance
  n: [1, 7, 32, 33]                 # a name for shapes, the launch and expressions; values may be arithmetic
  dtype: [float32, float16]
# where: n > 1 or dtype == "float32"   # keeps only these combinations

# The kernel: what is given to mx.fast.metal_kernel. Its keys, beside those below: name, header (text before the
# kernel), file and header_file (files beside this one that hold the texts), ensure_row_contiguous (default true),
# atomic (outputs are atomics), init (what outputs hold before), twin (body of another kernel of the same name that is
# launched before), and the seed of the data.
given:
  source: |
    uint i = thread_position_in_grid.x;
    y[i] = a * x[i];
  # An input has a shape and a dtype (default float32), and
  #   values: normal, uniform, integers (low to high), bits, special, index, permutation, zeros, ones, or a list
  #   view: plain, transposed, stride-0, sliced
  # or is a Python number, `scalar`.
  inputs:
    x: {shape: [n], dtype: dtype}
    a: {scalar: 2}
  # What must come out: an expression over the inputs, computed in float64 (NumPy's functions; @ multiplies matrices),
  # or `function: file.py:name`, Python beside this file, for which users must say --allow-code.
  # within: exact, {ulp: 4}, {magnitudes: sum(abs(x)), terms: n}, {limit: 8 * unit * abs(expected)} or {nmse: 0.001}
  outputs:
    y: {shape: [n], dtype: dtype, expect: a * x, within: exact}
  template: {T: dtype}              # a dtype, a number or a truth for each parameter
  grid: [n]                         # threads in x, y, z
  threadgroup: [32]

# output: is everything written, right, and nothing behind the end?    untouched: do the inputs stay as they were?
# lane-order: is it right in whatever order the threads of a threadgroup take their turns? Finds missing barriers.
# deterministic: does a second launch write the same bits?
check: [output, untouched, lane-order, deterministic]
# time: [kernel]                    # what `assay run --benchmark` times
"""

TRELLIS = """\
assay: 1                            # version of the format
kind: trellis
title: $title
why: >
  Say here who gets this wrong, and how. It is what a reader of a failure wants to know first.
# source: https://...               # where it was reported or is defined

matrix:                             # every combination is an instance
  bits: [2, 3, 4]                   # bits a weight
  rows: [1, 7]                      # values may be arithmetic over other keys
# where: bits != 3 or rows > 1      # keeps only these combinations

# The coded matrix and the vectors that multiply it. The keys: bits, state_bits (of the window that selects a
# codeword), block (weights in one circular bit string), rows (inputs), columns (outputs, a multiple of block),
# interleave, batch (vectors), splits (parts of the sum), dtype (of the vectors), the seed of the data, and
#   codebook: 1mad, 2mad, mul1, 3inst, mcg
#   symbols: random, golden         scales: ones, random, signed         x: normal, one-hot
given: {state_bits: 12, columns: 512, batch: 2, seed: 1}

# states: are the integer states of all weights right?    decode: is every weight right, bit for bit?
# tail: are the columns right whose window wraps around?  gemv: is the product within its error bound?
check: [decode, gemv]
# time: [decode, gemv]              # what `assay run --benchmark` times
# expect: values that are known from elsewhere; cases/trellis/golden-values.yaml of metal-assay has some
"""

TEMPLATES = {"affine": AFFINE, "kernel": KERNEL, "ring": RING, "trellis": TRELLIS}


def new_case(path: Path | None, kind: str | None) -> list[str]:
    """Write a case and return what to tell the user: where it is and what to do next.

    Without `kind`, the folder of `path` is taken for one if it is called so, else it is `ring`. Without `path`, it is
    `cases/<kind>/my-behavior.yaml`. Raises UsageError for a bad path or kind, and when the file exists.
    """
    if kind is None:
        folder = path.absolute().parent.name if path is not None else ""
        kind = folder if folder in KIND_NAMES else "ring"
    if kind not in KIND_NAMES:
        raise UsageError(f"no kind '{kind}'{nearest(kind, KIND_NAMES)}")
    if kind not in TEMPLATES:
        raise UsageError(f"there is no template for kind '{kind}'; there are {', '.join(TEMPLATES)}")
    path = Path("cases", kind, "my-behavior.yaml") if path is None else path
    try:
        path = _checked(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made here or not at all: nobody's file is overwritten, also not one that appears this very moment.
        with path.open("x", encoding="utf-8") as file:
            file.write(Template(TEMPLATES[kind]).substitute(title=_yaml_text(_title(path.stem))))
    except FileExistsError as error:
        if error.filename != str(path):
            raise UsageError(f"{path}: can't be written: {error.filename} is no folder") from None
        raise UsageError(f"{path}: exists already and is left alone; choose another name") from None
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None
    shown = shlex.quote(str(path))
    return [
        f"wrote {path}, a case of kind {kind} that passes as it stands",
        "next: change it to say what you want to test; its comments tell what can be written. Then",
        f"  assay run {shown}",
        f"  assay run {shown} --subject path/to/mine.py:Mine",
    ]


def _checked(path: Path) -> Path:
    """Return the path with a suffix; raises UsageError for one that can't name a case well."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it, such as {path / 'my-behavior.yaml'}")
    if not path.suffix:
        path = path.with_suffix(SUFFIXES[0])
    # Ids, patterns and `--select` are easy to type with such names only.
    words = "-".join(re.findall(r"[^\W_]+", path.stem.lower()))
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: a case file ends in .yaml; write {path.with_suffix('.yaml')}")
    if path.stem != words:
        better = path.with_name(f"{words or 'my-behavior'}{path.suffix}")
        raise UsageError(f"{path}: a case is named by lower-case words joined by hyphens; write {better}")
    return path


def _title(name: str) -> str:
    """Make the beginning of a sentence of a file's name."""
    words = name.replace("-", " ")[:MAX_TITLE_CHARS].strip()
    return words[0].upper() + words[1:]


def _yaml_text(text: str) -> str:
    """Write a text that YAML reads as itself: `Yes` and `12` need quotes."""
    return text if yaml.safe_load(f"title: {text}") == {"title": text} else json.dumps(text, ensure_ascii=False)
