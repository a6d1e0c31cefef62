"""Served models: clients, and the page of `trainers.demo`."""
