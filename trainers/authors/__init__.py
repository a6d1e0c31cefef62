"""The authors' code and weights, beside ours."""
