"""The calls that a clock counts."""

from __future__ import annotations

from collections.abc import Callable

# Called with the number of the call, it does the operation once and returns what the method of that name returns, in
# arrays of MLX or NumPy, evaluated or not: the clock stops when all of it is there. Some answers are compared, and
# nobody says which.
TimedCall = Callable[[int], object]
