"""Timing: rounds of visits, interleaved over what is compared, and the samples that verdicts are made of."""
