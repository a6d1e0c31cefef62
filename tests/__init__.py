"""Tests; the folders mirror the sources."""
