"""Where numbers of a dtype are spaced evenly: what underflows there is off by a step, however small it is."""

# The smallest positive number, and the smallest whose neighbors are a unit roundoff away.
TINY = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
SMALLEST_NORMAL = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
