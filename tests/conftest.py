"""Set-up shared by all tests."""

from __future__ import annotations

import os

# The tests start many short-lived processes; where writing bytecode is switched off, each would compile everything.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The tests' arrays are small: a second BLAS thread only spins, on a core that another worker of the tests needs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
