"""Scores of the documents of a corpus under an exported language model."""
