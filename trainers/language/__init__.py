"""Language models: training, evaluation, adaptation."""
