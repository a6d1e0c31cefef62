"""The documentation's pages, and the scripts that draw its pictures."""
