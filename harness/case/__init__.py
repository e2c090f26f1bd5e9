"""Case files: their schema, how they are loaded, and how a matrix becomes instances."""
