"""What every public layer and model promises."""
