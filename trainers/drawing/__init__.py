"""DRAW, a recurrent network that draws images (Gregor et al. 2015), and its experiment."""
