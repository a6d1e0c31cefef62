"""Tests; the folders mirror the sources."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
