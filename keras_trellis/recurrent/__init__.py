"""Recurrent layers: Keras's own, as sequence layers."""
