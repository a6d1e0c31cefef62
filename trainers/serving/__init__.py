"""Served models: clients, and exports in this process."""
