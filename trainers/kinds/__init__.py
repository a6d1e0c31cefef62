"""What the kinds of task share; each has a folder of its own."""
