"""Trellis-coded matrices: codebooks, the layout of codes in memory, decoding and products with vectors."""
