"""What is timed of batched rings, the reference's and mlx-lm's, and one round of it after the other."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import mlx.core as mx

from impl.rings import BatchedRotatingCache, SpeculativeRotatingKVCache

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS, HEAD_DIM, DTYPE = 8, 128, mx.bfloat16
WARM_UP_STEPS, TIMED_STEPS, TOKENS = 8, 32, 8
DRAFT_TOKENS, KEPT_TOKENS = 4, 2

Block: TypeAlias = tuple[mx.array, mx.array]
Times: TypeAlias = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Size:
    """Rows of unequal length in a ring of ``window`` columns, half full or wrapped."""

    rows: int
    window: int
    wrapped: bool

    @property
    def columns(self) -> int:
        """Columns of the prompt; a half-full ring has spare columns for all steps of a visit."""
        return self.window if self.wrapped else self.window // 2

    @property
    def left_padding(self) -> list[int]:
        """Padding of each row: none for the longest, almost half of the prompt for the shortest."""
        return [row * self.columns // (2 * self.rows) for row in range(self.rows)]


@dataclass(frozen=True, slots=True)
class Arm:
    """Whose caches take a decode step: so many of them in one evaluation, of which the first ones make a mask."""

    theirs: bool
    caches: int = 1
    masks: int = 1


THEIRS, OURS, CONTROL, ROLLBACK, ADDITION = "mlx-lm", "reference", "control", "rollback", "addition"
ONE_CACHE, MASK_EACH, ONE_MASK = "1 cache", "8 caches, a mask each", "8 caches, one mask"
# Caches and masks of an evaluation.
UNITS = {ONE_CACHE: (1, 1), MASK_EACH: (8, 8), ONE_MASK: (8, 1)}
ARMS = {f"{who}, {unit}": Arm(who == THEIRS, *numbers) for who in (THEIRS, OURS) for unit, numbers in UNITS.items()}
ARMS[CONTROL] = Arm(theirs=False)
ROLLBACK_SIZES = (Size(4, 1024, wrapped=False), Size(4, 1024, wrapped=True))


@dataclass(frozen=True, slots=True)
class Inputs:
    """A prompt, and tokens that take turns; all evaluated before any clock starts."""

    prompt: Block
    tokens: list[Block]


def make_inputs(size: Size, seed: int) -> Inputs:
    """Draw keys and values."""
    random_keys = iter(mx.random.split(mx.random.key(seed), 2 + 2 * TOKENS))

    def block(tokens: int) -> mx.array:
        return mx.random.normal((size.rows, HEADS, tokens, HEAD_DIM), dtype=DTYPE, key=next(random_keys))

    inputs = Inputs((block(size.columns), block(size.columns)), [(block(1), block(1)) for _ in range(TOKENS)])
    mx.eval(inputs.prompt, inputs.tokens)
    return inputs


def timed(call: Callable[[Any], object], prepare: Callable[[int], object]) -> float:
    """Median nanoseconds of a call; ``prepare`` makes its argument before the clock starts."""
    times = []
    for turn in range(TIMED_STEPS):
        argument = prepare(turn)
        start = time.perf_counter_ns()
        # What it gives is dropped at once, as a layer does: a buffer that somebody holds is not written in place.
        call(argument)
        times.append(time.perf_counter_ns() - start)
    return median(times)


def time_decode(arm: Arm, size: Size, inputs: Inputs) -> tuple[float, list[mx.array]]:
    """Median nanoseconds of a decode step in steady use, and the answer to one step more."""
    from mlx_lm.models.cache import BatchRotatingKVCache

    make = BatchRotatingKVCache if arm.theirs else BatchedRotatingCache
    caches: list[Any] = [make(size.window, size.left_padding) for _ in range(arm.caches)]

    def step(token: Block) -> list[mx.array]:
        arrays = [cache.make_mask(1, return_array=True) for cache in caches[: arm.masks]]
        for cache in caches:
            arrays += cache.update_and_fetch(*token)
        mx.eval(arrays)
        return arrays

    for cache in caches:
        cache.update_and_fetch(*inputs.prompt)
    # The first steps grow the buffer or wrap the ring, and copy what the prompt's owner still holds.
    for turn in range(WARM_UP_STEPS):
        step(inputs.tokens[turn % TOKENS])
    took = timed(step, lambda turn: inputs.tokens[turn % TOKENS])
    return took, step(inputs.tokens[0])


def time_rollback(size: Size, inputs: Inputs) -> float:
    """Median nanoseconds of taking back the end of a verified block, equally long in every row, which is a trim."""
    ring = SpeculativeRotatingKVCache(size.window, size.left_padding)
    ring.update_and_fetch(*inputs.prompt)
    ring.spec_round_begin()
    draft = inputs.tokens[:DRAFT_TOKENS]
    keys, values = (mx.concatenate([token[part] for token in draft], axis=2) for part in (0, 1))
    mx.eval(ring.update_and_fetch(keys, values))

    def take_back(twin: SpeculativeRotatingKVCache) -> None:
        twin.spec_round_rollback(KEPT_TOKENS)
        mx.eval(twin.keys, twin.values)

    return timed(take_back, lambda _: ring.copy())


def time_addition() -> float:
    """Median nanoseconds of evaluating 1 + 1: what an evaluation costs here, whatever it does."""
    one = mx.ones((1,))
    return timed(lambda _: mx.eval(one + one), lambda _: None)


def measure(size: Size, rounds: int, seed: int) -> Times:
    """Median nanoseconds by arm and round; raises AssertionError when the two rings differ in any answer."""
    gc.disable()
    inputs, order = make_inputs(size, seed), random.Random(f"{seed} {size}")  # noqa: S311 - an order, no secret
    times: Times = {name: [] for name in (*ARMS, ADDITION, *([ROLLBACK] if size in ROLLBACK_SIZES else []))}
    for _ in range(rounds):
        answers: dict[int, list[mx.array]] = {}
        for name in order.sample(sorted(times), len(times)):
            if name in ARMS:
                took, answer = time_decode(ARMS[name], size, inputs)
                other = answers.setdefault(len(answer), answer)
                assert all(bool(mx.array_equal(*pair)) for pair in zip(answer, other, strict=True)), (name, size)
            else:
                took = time_addition() if name == ADDITION else time_rollback(size, inputs)
            times[name].append(took)
    return times
