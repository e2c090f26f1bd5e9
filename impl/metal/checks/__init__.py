"""Runs Metal kernel text with checks: what is wrong in it, with line and column."""

from impl.metal.checks.checking import CheckingBackend, check_call
from impl.metal.checks.finding import Checked, Fault, Finding, Place

__all__ = ["Checked", "CheckingBackend", "Fault", "Finding", "Place", "check_call"]
