"""Names of what the functions of an export take and return."""

NEXT = "next_"
"""Before the names of outputs that are the next value of an input."""

STEPS = "cache_steps"
"""How many tokens a cache has read."""

FINGERPRINT = "cache_fingerprint"
"""The number of the model that a cache is of."""
