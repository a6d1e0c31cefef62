"""The layers, heads and cells that a config chooses, with their fields and rules."""
