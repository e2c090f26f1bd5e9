"""Trellis-coded matrices: codebooks, the layout of codes in memory, encoding, decoding, products and files.

`README.md` in this folder explains the format.
"""
