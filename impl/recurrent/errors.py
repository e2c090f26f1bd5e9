"""Errors of recurrent layers and their cache."""

from __future__ import annotations

from impl.errors import ImplError


class RecurrentError(ImplError, ValueError):
    """An operation that a recurrent cache refuses; the cache is as it was before the call."""


class StateNotTrimmableError(RecurrentError):
    """A state was asked to forget tokens, which are no longer in it one by one."""
