"""The authors' code and weights, and their counterparts here."""
