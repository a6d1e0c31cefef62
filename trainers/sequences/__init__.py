"""What models of sequences share: of images read pixel by pixel, drawn sequences, recordings."""
