"""What an export and whoever runs it share. NumPy alone."""
