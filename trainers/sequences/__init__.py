"""Models of sequences: images pixel by pixel, and tests of memory."""
