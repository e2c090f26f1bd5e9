"""What mlx-lm gets wrong, as far as the ring cases tell: each cause once, with its cases and the releases that have it.

A case that fails for a cause listed here belongs into that cause's list; one that fails for another cause brings a new
entry. `test_mlx_lm.py` holds the pinned release to it, `versions.py` makes a table of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = ("0.30.5", "0.31.1", "0.31.3", "0.32.2")
# What most faults have in common: nobody has mended them so far.
PINNED = VERSIONS[-1]


@dataclass(frozen=True)
class Fault:
    """Something that mlx-lm gets wrong: in words, the cases that pin it, and the releases that have it."""

    what: str
    cases: tuple[str, ...]
    releases: tuple[str, ...] = VERSIONS


FAULTS = (
    Fault(
        "trim of a ring moves its counters, and the columns stay where they are",
        (
            "ring/trim-after-long-block",
            "ring/sinks-and-a-trim",
            "ring/trim-a-long-first-block",
            "ring/trim-again-and-again",
            "ring/trim-more-than-the-last-block",
            "ring/trim-past-what-is-held",
            "ring/trim-with-a-window-of-one",
            "ring/trim-a-batch-after-a-long-block",
            "ring/trim-a-batch-past-what-is-held",
            "ring/trim-a-wrapped-batch",
            "ring/trim-after-the-long-row-left",
        ),
    ),
    Fault(
        "trim of a batch takes more from a short row than it holds",
        ("ring/trim-more-than-the-shortest-row-holds",),
    ),
    Fault(
        "merge has no room for a ring that holds more than its window",
        ("ring/merge-a-row-longer-than-the-window",),
        ("0.30.5", "0.31.1"),
    ),
    Fault(
        "merge looks for the shape of keys where no cache has any",
        ("ring/merge-nothing-but-empty-rows",),
        ("0.30.5", "0.31.1"),
    ),
    Fault(
        "a batch without keys can't be filtered",
        ("ring/filter-an-empty-batch",),
        ("0.30.5", "0.31.1"),
    ),
    Fault(
        "no row can be extracted from a batch without keys",
        ("ring/extract-an-empty-row",),
    ),
    Fault(
        "a quantized cache reckons with whole codes a word, 32 // bits",
        ("ring/quantized-cache-takes-every-width",),
    ),
    Fault(
        "filter and extract forget what was announced for an open prefill",
        (
            "ring/filter-in-an-open-prefill",
            "ring/aligned-rows-in-an-open-prefill",
            "ring/filter-after-the-last-chunk",
            "ring/extract-in-an-open-prefill",
        ),
    ),
    Fault(
        "a batched ring that was saved and loaded lacks a field",
        (
            "ring/saved-batch-goes-on",
            "ring/saved-batch-works-on",
        ),
    ),
    Fault(
        "a batch that was saved in an open prefill comes back without what was announced, and can't close it",
        ("ring/saved-in-an-open-prefill",),
    ),
    Fault(
        "a trimmed ring is saved with the columns that were taken back, which earlier releases cut off",
        ("ring/saved-one-token-short",),
        ("0.32.2",),
    ),
    Fault(
        "a cache that holds nothing can't be saved",
        ("ring/saved-after-every-token",),
        ("0.30.5", "0.31.1", "0.31.3"),
    ),
    Fault(
        "a chunked cache trims its front by the columns that are allocated",
        (
            "ring/chunked-cache-drops-its-front",
            "ring/chunked-cache-takes-blocks",
            "ring/chunked-cache-is-copied-and-saved",
        ),
        ("0.30.5", "0.31.1", "0.31.3"),
    ),
    Fault(
        "the mask of a block on a batch that has just wrapped hides a token of short rows",
        (
            "ring/block-on-a-wrapped-batch",
            "ring/batch-switches-between-tokens-and-blocks",
        ),
    ),
    Fault(
        "the mask of a block hides the sinks",
        ("ring/sinks-seen-by-every-query-of-a-block",),
    ),
    Fault(
        "a ring hands out the array into which it later writes",
        (
            "ring/arrays-handed-out-do-not-change",
            "ring/batch-arrays-handed-out-do-not-change",
        ),
    ),
    Fault(
        "a mask of left paddings forgets the lengths",
        (
            "recurrent/prefill-right-padded",
            "recurrent/prefill-in-chunks",
            "recurrent/prefill-of-single-columns",
            "recurrent/prefill-on-warm-rows",
            "recurrent/prefill-turn-after-turn",
            "recurrent/prefill-with-a-row-without-tokens",
            "recurrent/merge-nothing-but-empty-rows",
        ),
        ("0.30.5", "0.31.1", "0.31.3"),
    ),
    Fault(
        "a chunked scan takes the end of a row from behind the chunk",
        ("recurrent/row-goes-on-after-the-chunk", "recurrent/row-ended-many-chunks-ago"),
    ),
    Fault(
        "rows that join an open prefill get a length of 0",
        ("recurrent/extend-in-an-open-prefill",),
    ),
    Fault(
        "no row can be extracted from a batch without arrays",
        ("recurrent/extract-an-empty-row",),
    ),
)


def case_of(instance: str) -> str:
    """Return the name of the case that an instance is of."""
    return instance.partition("[")[0]
