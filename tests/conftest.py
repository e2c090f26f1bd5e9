"""Set-up shared by all tests."""

from __future__ import annotations

import os

# The tests start many short-lived processes; where writing bytecode is switched off, each would compile everything.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
