"""Classifiers of images that are read pixel by pixel."""
