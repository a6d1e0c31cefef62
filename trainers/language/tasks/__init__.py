"""The tasks of language: what every command knows of them."""
