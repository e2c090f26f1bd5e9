"""What a subject's method may raise that is no error."""

from __future__ import annotations


class Unsupported(Exception):  # noqa: N818 - an outcome, not an error
    """The subject does not offer what is asked; the text says why ("keeps no sinks after a merge")."""


class Refused(Exception):  # noqa: N818 - an outcome, not an error
    """The subject declined an operation and says that it left its state alone; the text is its reason."""
