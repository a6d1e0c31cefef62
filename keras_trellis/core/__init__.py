"""The network as it is written on a board, and the parts it is made of."""
