"""Models of recordings: series of several channels, with one answer each or one a step."""
