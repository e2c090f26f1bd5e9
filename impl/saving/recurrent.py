"""The cache of a recurrent layer in a file, with what is left of its open prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.affine import FLOAT_DTYPES
from impl.recurrent import RecurrentCache, SsmPrefillPadding
from impl.saving.parts import MOST_TOKENS

if TYPE_CHECKING:
    from impl.saving.parts import Draft, Part


def describe_recurrent(cache: RecurrentCache, draft: Draft) -> dict[str, Any]:
    """Describe offsets and padding; an array that is not there yet stands for zeros, and is not written."""
    for name, array in (("conv_state", cache.conv_state), ("state", cache.state)):
        if array is not None:
            draft.put(name, array)
    padding = cache.padding
    return {
        "offsets": cache.offsets,
        "has_conv_state": cache.conv_state is not None,
        "has_state": cache.state is not None,
        "padding": None if padding is None else {"left": padding.left, "lengths": padding.lengths},
    }


def read_recurrent(part: Part) -> RecurrentCache:
    """Return the cache of a recurrent layer."""
    count = part.length("offsets")
    cache = RecurrentCache(count)
    cache._offsets = part.integers("offsets", count)  # noqa: SLF001 -- our own cache, not yet seen by anybody
    if part.flag("has_conv_state"):
        cache.conv_state = part.tensor("conv_state", FLOAT_DTYPES, (count, None, None))
    if part.flag("has_state"):
        cache.state = part.tensor("state", [mx.float32], (count, None, None, None))
    if not part.is_null("padding"):
        cache._padding = _read_padding(part.part("padding"), count)  # noqa: SLF001
    return cache


def _read_padding(part: Part, rows: int) -> SsmPrefillPadding:
    padding = SsmPrefillPadding.none(rows)
    # Both are negative once they are behind, which no announcement may be.
    padding._left = list(part.integers("left", rows, -MOST_TOKENS))  # noqa: SLF001
    padding._lengths = list(part.integers("lengths", rows, -MOST_TOKENS))  # noqa: SLF001
    part.close()
    return padding
