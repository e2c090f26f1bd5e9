"""The verbs of the command line: one module each, whose `command` is what `assay VERB` runs."""
