"""Recordings: what crossed the border to a subject, kept in files, and done again elsewhere (README.md has the format).

Nothing here knows a kind: a call is a method of `harness.subjects.protocol` with its arguments and its result.
"""
