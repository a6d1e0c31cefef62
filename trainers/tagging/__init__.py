"""Models that give each step of a recording a tag."""
