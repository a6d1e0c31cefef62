"""Learning to learn (Andrychowicz et al. 2016): optimizers that are recurrent networks."""
